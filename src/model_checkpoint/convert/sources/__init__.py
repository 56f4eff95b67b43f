"""Sources: what other formats hold, as states whose tensors lie in mapped files; nothing in a file is ever run.

imported            one checkpoint of another format, as it is to be saved.
trainer_folder      a checkpoint of the Hugging Face Trainer.
lightning_file      what a checkpoint of Lightning tells of itself.
huggingface_folder  weights as ``from_pretrained`` opens them.
torch_file          a file by ``torch.save``, read by the loader that runs nothing.
safetensors_file    one safetensors file.
dcp_folder          a checkpoint of torch.distributed.checkpoint.
dcp_metadata        the pickle that describes it, of which only known classes are built.
torch_archive       one tensor of it: an archive within a file.
orbax_folder        a checkpoint of Orbax, read by Orbax itself.
mapped_file         tensors over the bytes of a file, which come into memory when they are copied.
"""
