# Written by `make stub`.
from untilt.datasets.pages import read_baidu_ultr as read_baidu_ultr
from untilt.datasets.pages import read_clara2 as read_clara2
from untilt.datasets.pages import read_trec_sessions as read_trec_sessions
from untilt.datasets.pages import read_yandex as read_yandex
from untilt.datasets.tables import read_expedia as read_expedia
from untilt.datasets.tables import read_judged_set as read_judged_set
from untilt.datasets.tables import read_open_bandit as read_open_bandit
from untilt.datasets.tables import read_thuir_news as read_thuir_news
