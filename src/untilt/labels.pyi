# Written by `make stub`.
from untilt.data.grades import Grades as Grades
from untilt.data.grades import ask_judge as ask_judge
from untilt.data.grades import read_labels as read_labels
from untilt.evaluation.labels.estimate import estimate_labels as estimate_labels
from untilt.evaluation.labels.plan import plan_labels as plan_labels
