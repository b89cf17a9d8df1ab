/* StartSample and ReadSample: trainers, the hub process and a node, from a sample file to learnt batches. */
