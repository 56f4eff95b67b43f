"""Feeding: batches of any kind of data from any place of an epoch, with the randomness they had.

feed               what a run asks of its data, and which kind of feed serves it.
prepared_loader    the batches of a loader that accelerate prepared, begun anywhere.
torch_loader       the batches of a torch DataLoader, begun anywhere without reading what is skipped.
index_stream       the order of a sampler from any place, each batch with a seed of its own.
loader_workers     they outlive signals meant for the process that will save, and end with it all the same.
seeded_datasets    datasets whose randomness depends on the place in the run, not on a worker's past.
stateful_data      data that knows its own place.
replayed_data      data that knows no place: read again up to it.
data_content       a checksum of what data holds, sampled, without reading it.
kept_numbers       what a dataset or a sampler counts by itself, and nobody saves.
generators         those of a program and of whatever makes batches: found, seeded, taken down, set back.
"""
