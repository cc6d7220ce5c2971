# Written by `make stub`.
from untilt.data.clicklog import ClickLog as ClickLog
from untilt.data.judged import JudgedLists as JudgedLists
from untilt.data.layout import Grid as Grid
from untilt.data.letor.read_letor import read_letor as read_letor
from untilt.data.letor.write_letor import write_letor as write_letor
from untilt.data.limits import DroppedRowsWarning as DroppedRowsWarning
from untilt.data.read.bad_rows import ReadReport as ReadReport
from untilt.data.read.engines import collapse_sql as collapse_sql
from untilt.data.read.read_log import read_log as read_log
from untilt.data.read.read_log import read_log_report as read_log_report
from untilt.data.read.read_log import read_ubi as read_ubi
from untilt.data.read.ubi import Ubi as Ubi
from untilt.data.transform import synthesise as synthesise
