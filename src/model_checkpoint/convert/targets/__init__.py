"""Targets: checkpoints of ours, written in other formats; what is written appears when it is whole and on the medium.

dcp_export          a folder that ``dcp.load`` opens, a stretch of each tensor in memory at a time.
huggingface_export  a folder that ``from_pretrained`` opens, with the small files it came with.
torch_export        a file that ``torch.load`` opens, its tensors mapped on the way.
orbax_export        a folder that Orbax opens.
"""
