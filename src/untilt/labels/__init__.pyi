# Written by `make stub`.
from untilt.labels.estimate import estimate_labels as estimate_labels
from untilt.labels.graded import Grades as Grades
from untilt.labels.graded import ask_judge as ask_judge
from untilt.labels.graded import read_labels as read_labels
from untilt.labels.plan import plan_labels as plan_labels
