"""A ranker that untilt 0.1.0 saved is still read: the format of the file is a promise."""

import base64

import numpy as np
import pytest

import untilt as ut

# LinearRanker(IPS(bias, clip=0.25)) of four features, fitted on 600 simulated sessions.
SAVED = """
UEsDBBQAAAAIAAAAIQDVx26McQQAAIMMAAALAAAAdW50aWx0Lmpzb261Vltr40YUfvevGERhs9QWc7+E5qH7VmghtH3b
BjOxx7YaWXJ1yW5Y/N/3zEWy7E0CJcRga+Z854w/nducbzOUbepmb7vsGpE57B6Kag3r7Peicrb501YPrsk80FddUXq1
DOckx0G2apztXNCnmMoFIQsi/qb4mrJryn/G+BpHxbK4b2xTuBZUv80Qyg5P3a6uvCHLCcmV10JZ1e8PT+G0nOcyytpV
EWUkJyono/Ch6BYlUKwiZgaoLLa7bnu/92KeK2A6Q0fP4WAbu3eda0YSW1sEa9t3dTKmsMc5xiRu69Yrw3NbtF2xikp7
+3VZwDneZRjjUdbUfbX2+iLK/utd87T84jwhf0rr2raoqza9QrHdW39EHrW7unSNrVbOy9wCyyCN1kW1TZxR9lP3dPA6
2W+3f4WTIIKFK9fDW8H+vrCn3cTitm6LDhh88vg8oRfGIHFf7b6orNcE8eckHoiGD87lZM0nazZZUzHd/N91Wt4Nsqzt
1kvXNHUzZYXPWMW4vfcmq2yV/UAPcmtXh1r4tSxvbdGMPoYMa9t+H7J/JJ7dfvrjx0PaznZ9yLlVXT26ZgvVNYKNKyEq
jz6WXdO7UV66R1eGxDXiJKy/vBw9oTHHmElMBBfGnAXwHDoL4YXVNAcoO8fUBCMXdvpdseejs4M6eiWbiYFDJDOaCzj2
LLnPITF1CLvApv6Q59BZXVyY8XfFzvwRn8fwOEaVbFUWh5A9Q71m1nfGNjStvgJ49QBpOEuGx9RPfaq6oZX6lrOETdWX
5XwU7KBr1tADvePvYtfrbLW2zbpo3Tq1xmCXepttGvs0hgkczBTGXMNXaqWEmc+G6BuDNZFCcioAGOSUGmwIlpJIpiQb
MhSqVxLGMdMMskUyHZpLTI5sPbTHXzY6NdR2Z4Mo0uCz5LnjpCW/xhoLgpXkklHNtNKSixNvpbTCSmtGjSKjXFNCFZeU
Q9pofGIttGKGKIOpIgoT8wbae2erFzkvSM4wUAXnKU4YpvREGQhIw4A3BnZE6QEQXBJhJNEQGspJki+8hdZQJ5IzI6Sk
TL6BdbuypXuRtswFuItzaEXgbyxT04HaJoQaAbyxAWQoPsgPpQ0XSmACzsdSy9GAcwiWUZrA++K3MN7ASNQ3blnBsDFN
kq4/lCejbENSX882dFyxccWzCz/0+72NlRTP6xooUaihOESFGk33zdnM4KeEK1+LN9PLH90/oeGSmqPhWkFdjQ5JCxF0
Nd5AH/+pgpeCo+CD0OewmMf9XYRpaKQRDjfM3O/pALPQTAeYRZiPMA/lPsA0wmyERZwnBpgFmKoBlgEerEm0pqO1eh3W
r8PmVZjgCQytdo7g526OfFe9CT0VpXZ682Fsph8+plj5GTGOxUSlfKtXMCpUnZdRQ1PGDaPjNZJx4gRFP5JWq25ZwiJo
p/74/NiKsvr+X7dK8wNEhhtBNVdcK2IUT3/k59ow+fkDEqPTJDKZO56bVNBVaeHZdqgt64NDPGcwyCpkN3AqBOF0+Mcs
XSSz43dQSwECFAMUAAAACAAAACEA1cdujHEEAACDDAAACwAAAAAAAAAAAAAAgAEAAAAAdW50aWx0Lmpzb25QSwUGAAAA
AAEAAQA5AAAAmgQAAFcAdW50aWx0IHJhbmtlciAxIHNoYTI1NiBjZTMyNDA1MGU0NGY3YmRkYTM1NGUzYzUwNTIyYmRl
NGU4NjQ2ZTRkMmI3ZmI2ZTkzMDQwYmFkNjYxZTFkYTQ5
"""
SCORES = (1.1393595591980719, -0.3996800211776781)


def test_a_ranker_saved_by_the_first_version(tmp_path):
    path = tmp_path / "old.untilt"
    path.write_bytes(base64.b64decode(SAVED))
    ranker = ut.load(path)
    assert isinstance(ranker.weighting, ut.IPS)
    assert ranker.weighting.clip == 0.25
    bias = ranker.weighting.bias
    assert (bias.method, bias.assumes, bias.status) == ("AllPairs", ("PBM",), "converged")
    assert bias.examination[:4].tolist() == [1.0, 0.6, 0.4, 0.3]
    assert bias.std_error[:2].tolist() == [0.0, 0.01]
    assert np.isnan(bias.std_error[-1])
    scores = ranker.predict(np.array([[0.5, -1.0, 2.0, 1.0], [0.0] * 4], dtype=np.float32))
    assert scores == pytest.approx(SCORES, rel=1e-12)
