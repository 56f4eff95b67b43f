"""Settings every test needs before the first framework is imported."""

import os
import signal

pytest_plugins = ["tests.ground.database_servers"]

# bf16 matrix products die on machines that advertise AMX but cannot run it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# tests run in parallel, and children forked by them must not meet threads that do not exist there
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "torch")
# a shell starts its background jobs deaf to interrupts, which children inherit; tests interrupt themselves
signal.signal(signal.SIGINT, signal.default_int_handler)
