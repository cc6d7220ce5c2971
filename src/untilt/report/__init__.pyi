# Written by `make stub`.
from untilt.report.card import model_card as model_card
from untilt.report.decision import Decision as Decision
from untilt.report.decision import write_report as write_report
