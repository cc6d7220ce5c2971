# Written by `make stub`.
from untilt.exports.format import check_export as check_export
from untilt.exports.format import export_model as export_model
from untilt.exports.judgments import Judgments as Judgments
from untilt.exports.judgments import click_judgments as click_judgments
