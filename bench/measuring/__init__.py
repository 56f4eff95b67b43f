"""Measuring: what every benchmark stands on: contenders, rounds, clean disks, results and how they are told."""
