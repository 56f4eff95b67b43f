"""Plan: who writes what where, what a load must read, and whether it fits (step 2). Pure: numbers in, values out."""

from __future__ import annotations

from model_checkpoint.plan.assign import FilePlan as FilePlan
from model_checkpoint.plan.assign import assign as assign
from model_checkpoint.plan.boxes import Index as Index
from model_checkpoint.plan.boxes import box_of as box_of
from model_checkpoint.plan.choose import Best as Best
from model_checkpoint.plan.choose import parse_best as parse_best
from model_checkpoint.plan.choose import rank_by_age as rank_by_age
from model_checkpoint.plan.choose import rank_by_metric as rank_by_metric
from model_checkpoint.plan.parts import live_matcher as live_matcher
from model_checkpoint.plan.parts import matcher as matcher
from model_checkpoint.plan.parts import renamer as renamer
from model_checkpoint.plan.reads import ChunkRead as ChunkRead
from model_checkpoint.plan.reads import Piece as Piece
from model_checkpoint.plan.reads import plan_reads as plan_reads
from model_checkpoint.plan.report import LoadReport as LoadReport
from model_checkpoint.plan.report import compare as compare
from model_checkpoint.plan.reuse import comparable as comparable
from model_checkpoint.plan.reuse import reassign as reassign
