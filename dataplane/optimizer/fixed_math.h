/* Logarithm, exponential function and cosine in double precision from IEEE additions, multiplications and
 * divisions alone, in a fixed order: the same bits in every build and with every C library. Pure, any thread.
 */
#ifndef MR_FIXED_MATH_H
#define MR_FIXED_MATH_H

/* Natural logarithm of a normal, positive x, good to about 1e-16 relative to max(1, |log x|). */
double mr_fixed_log(double x);
/* e^x for |x| <= 700, good to about 1e-15 + 4e-16 |x| relative. */
double mr_fixed_exp(double x);
/* cos(pi t) for t in [0, 1], good to about 1e-15. */
double mr_fixed_cos_pi(double t);

#endif
