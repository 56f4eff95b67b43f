"""Scaling: the loss scale, its history, and the way to FP32 and back.

scaler     the loss scale and when it moves.
timeline   when the loss scale moved and why, kept in the checkpoint, drawn on request.
importers  continue with the loss scale of torch GradScaler, Apex, Megatron or DeepSpeed.
fallback   which parameter groups left reduced precision for FP32, and when they may come back.
consensus  all processes that train one model take the same verdict on each step.
"""
