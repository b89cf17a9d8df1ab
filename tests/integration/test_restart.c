/* Server, hub and trainer are killed in the middle of training: nothing hangs, every batch is learnt exactly once. */
