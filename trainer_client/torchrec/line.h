/* Lines for whoever reads the trainer's stderr. */
#ifndef TDE_LINE_H
#define TDE_LINE_H

/* "millrace: ", and the text, in one write. Any thread. */
void tde_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
