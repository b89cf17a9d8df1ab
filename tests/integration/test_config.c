/* millraced refuses to start with one line that says what is wrong, where, and how to mend it. */
