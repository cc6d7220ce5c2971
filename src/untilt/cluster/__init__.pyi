# Written by `make stub`.
from untilt.cluster.dask import train_dask as train_dask
from untilt.cluster.group import tracker as tracker
from untilt.cluster.part import train_part as train_part
from untilt.cluster.spark import train_spark as train_spark
