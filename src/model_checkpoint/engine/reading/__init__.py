"""Reading: from verified chunks back to a state, a slice, a verdict or a difference.

load            a checkpoint becomes a training state again, or fills live objects; no byte is used unverified.
load_ranks      many ranks load one checkpoint together: all of them, or none.
first_healthy   from a checkpoint that cannot be used to the next older healthy one, telling what was passed over.
leaf_selection  which part of a saved tree goes into the live objects, settled before any byte is read.
chunks          bytes as they lie on the medium, believed only as far as their digests go.
deliver         carry verified bytes from the medium to where the tree wants them.
opaque_load     files that a storage backend wrote are checked, then given back to it.
gather_boxes    arrays that were saved in pieces, or are wanted in parts.
slices          read a box out of one saved array, verifying exactly the chunks it touches.
verify          read a checkpoint back from the medium and name every damage.
tensor_reader   the tensors of one checkpoint, one after the other, each verified before it is handed out.
diff            what changed between two checkpoints, tensor by tensor.
figures         what there is to say about the numbers of a checkpoint, for people who look at it.
peek            one leaf of a checkpoint, looked at without any of the others.
export          tensors of a checkpoint as safetensors files that other tools open.
"""
