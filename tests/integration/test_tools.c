/* The millrace program against a running node: ctl, top, doctor. */
