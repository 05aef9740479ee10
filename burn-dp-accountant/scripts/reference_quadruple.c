/* Computes ε of sampled Gaussian releases in quadruple precision, by the trapezoidal rule for the
 * moments and for the inversion integral, without a cut: the references of
 * `src/pld/inversion/mod.rs` and of row p040 in `tests/golden.rs`.
 *
 *     gcc -O2 reference_quadruple.c -lquadmath -o reference_quadruple
 *     ./reference_quadruple remove 0.01 1 100 1e-6  4 16 200 0.02
 *
 * Arguments: direction (remove or add), q, sigma, number of releases, delta; then the tilt, the
 * period, the largest frequency, and the distance between outcomes, which must be below
 * 2 pi / (largest frequency / sigma + 9). Two tilts and periods that agree show that the aliases,
 * and what is beyond the largest frequency, are negligible. */
#include <quadmath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef __float128 real;
typedef __complex128 complex128;

static real number(const char *text) { return strtoflt128(text, NULL); }

int main(int count, char **arguments) {
    if (count != 10) {
        fprintf(stderr, "nine arguments are needed; the comment at the top lists them\n");
        return 1;
    }
    int add = strcmp(arguments[1], "add") == 0, releases = atoi(arguments[4]);
    real q = number(arguments[2]), mu = 1 / number(arguments[3]), delta = number(arguments[5]);
    real tilt = number(arguments[6]), period = number(arguments[7]);
    real largest = number(arguments[8]), width = number(arguments[9]);

    /* The losses, and their masses under P times e^(tilt loss). */
    real low = add ? -26 : -14, high = add ? 14 : mu * (tilt + 1) + 15, total = 0;
    int nodes = (int)((high - low) / width) + 1;
    real *loss = malloc(nodes * sizeof(real)), *mass = malloc(nodes * sizeof(real));
    for (int i = 0; i < nodes; i++) {
        real x = low + width * i, ratio = log1pq(q * expm1q(mu * x - mu * mu / 2));
        loss[i] = add ? -ratio : ratio;
        real exponent = -x * x / 2 + (add ? -tilt : 1 + tilt) * ratio;
        mass[i] = width * expq(exponent) / sqrtq(2 * M_PIq);
        total += mass[i];
    }

    /* The integrand e^(-s ε) E[e^(sS)] / (s (s + 1)) without its first factor. */
    real step = 2 * M_PIq / period;
    int frequencies = (int)(largest / step);
    complex128 *integrand = malloc((frequencies + 1) * sizeof(complex128));
    for (int k = 0; k <= frequencies; k++) {
        complex128 moment = total, s;
        __real__ s = tilt, __imag__ s = step * k;
        for (int i = 0; i < nodes; i++) {
            real sine, cosine;
            sincosq(step * k * loss[i] / 2, &sine, &cosine);
            __real__ moment -= 2 * mass[i] * sine * sine;
            __imag__ moment += 2 * mass[i] * sine * cosine;
        }
        integrand[k] = cexpq(releases * clogq(moment)) / (s * (s + 1));
    }

    /* Bisection, as δ falls with ε. */
    real least = 0, most = 50;
    for (int round = 0; round < 100; round++) {
        real epsilon = (least + most) / 2, sum = 0;
        for (int k = 0; k <= frequencies; k++) {
            real sine, cosine;
            sincosq(step * k * epsilon, &sine, &cosine);
            real part = __real__ integrand[k] * cosine + __imag__ integrand[k] * sine;
            sum += k == 0 ? part : 2 * part;
        }
        if (sum * expq(-tilt * epsilon) / period > delta) least = epsilon; else most = epsilon;
    }
    char text[64];
    quadmath_snprintf(text, sizeof text, "%.18Qg", least);
    printf("%s\n", text);
    return 0;
}
