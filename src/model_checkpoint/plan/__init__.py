"""Plan: who writes what where, what a load must read, and whether it fits (step 2). Pure: numbers in, values out.

assign              cut a list of leaves into data files.
reuse               which files of an earlier checkpoint an incremental save may repeat, and how the rest is cut.
choose              which of several checkpoints is newest.
metric_expressions  what "best" means: a metric, or arithmetic on several, and a direction.
ranking             which of several checkpoints are best, who wins a tie, and what NaN means.
run_query           one line of text that chooses runs or checkpoints, the same for people, programs and pages.
parts               which leaves a caller means by ``parts=`` and ``rename=``.
report              how a checkpoint and the live objects differ, said before any byte is read.
reads               which chunks of which files hold the bytes a load wants.
boxes               which bytes of a stored array a slice needs.
sharding            which of many ranks holds, writes and reads which part of an array.
errors              each derives from the one tree and from the builtin its callers expect.
"""

from __future__ import annotations

from model_checkpoint.plan.assign import FilePlan as FilePlan
from model_checkpoint.plan.assign import assign as assign
from model_checkpoint.plan.boxes import Box as Box
from model_checkpoint.plan.boxes import Index as Index
from model_checkpoint.plan.boxes import Spans as Spans
from model_checkpoint.plan.boxes import box_of as box_of
from model_checkpoint.plan.boxes import parts_of as parts_of
from model_checkpoint.plan.choose import is_newer as is_newer
from model_checkpoint.plan.choose import newest_first as newest_first
from model_checkpoint.plan.choose import rank_by_age as rank_by_age
from model_checkpoint.plan.choose import sort_names as sort_names
from model_checkpoint.plan.choose import step_name as step_name
from model_checkpoint.plan.choose import told_step as told_step
from model_checkpoint.plan.choose import trainer_step as trainer_step
from model_checkpoint.plan.metric_expressions import MetricExpression as MetricExpression
from model_checkpoint.plan.parts import live_matcher as live_matcher
from model_checkpoint.plan.parts import matcher as matcher
from model_checkpoint.plan.parts import renamer as renamer
from model_checkpoint.plan.ranking import Ranking as Ranking
from model_checkpoint.plan.ranking import contends as contends
from model_checkpoint.plan.ranking import pareto_front as pareto_front
from model_checkpoint.plan.reads import ChunkRead as ChunkRead
from model_checkpoint.plan.reads import Piece as Piece
from model_checkpoint.plan.reads import plan_reads as plan_reads
from model_checkpoint.plan.report import LoadReport as LoadReport
from model_checkpoint.plan.report import compare as compare
from model_checkpoint.plan.reuse import comparable as comparable
from model_checkpoint.plan.reuse import reassign as reassign
