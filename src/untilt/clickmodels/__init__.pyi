# Written by `make stub`.
from untilt.clickmodels.cascade import CCM as CCM
from untilt.clickmodels.cascade import CM as CM
from untilt.clickmodels.cascade import DBN as DBN
from untilt.clickmodels.cascade import DCM as DCM
from untilt.clickmodels.cascade import SDBN as SDBN
from untilt.clickmodels.click_model import DCTR as DCTR
from untilt.clickmodels.click_model import GCTR as GCTR
from untilt.clickmodels.click_model import RCTR as RCTR
from untilt.clickmodels.compare import compare_click_models as compare_click_models
from untilt.clickmodels.examination import PBM as PBM
from untilt.clickmodels.examination import UBM as UBM
from untilt.clickmodels.ncm import NCM as NCM
