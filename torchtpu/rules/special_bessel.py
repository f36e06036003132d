"""Airy's function and Bessel's, of one tensor: rational approximations and Chebyshev series, coefficients first.

Source: Moshier, Cephes Math Library (airy.c, j0.c, j1.c, k0.c, k1.c), from which ATen's own come (aten/src/ATen/native/Math.h).
Coefficients begin with the highest power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import constant, to_float
from torchtpu.rules._series import chebyshev_series, polynomial, ratio
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower_table

# Airy: the leading factor for large positive arguments, and amplitudes of sine and cosine for large negative ones.
_AI_P = (
    3.46538101525629032477e-01, 1.20075952739645805542e+01, 7.62796053615234516538e+01, 1.68089224934630576269e+02,
    1.59756391350164413639e+02, 7.05360906840444183113e+01, 1.40264691163389668864e+01, 9.99999999999999995305e-01,
)
_AI_Q = (
    5.67594532638770212846e-01, 1.47562562584847203173e+01, 8.45138970141474626562e+01, 1.77318088145400459522e+02,
    1.64234692871529701831e+02, 7.14778400825575695274e+01, 1.40959135607834029598e+01, 1.00000000000000000470e+00,
)
_AI_SIN_P = (
    -1.31696323418331795333e-01, -6.26456544431912369773e-01, -6.93158036036933542233e-01, -2.79779981545119124951e-01,
    -4.91900132609500318020e-02, -4.06265923594885404393e-03, -1.59276496239262096340e-04, -2.77649108155232920844e-06,
    -1.67787698489114633780e-08,
)
_AI_SIN_Q = (
    1.0, 1.33560420706553243746e+01, 3.26825032795224613948e+01, 2.67367040941499554804e+01, 9.18707402907259625840e+00,
    1.47529146771666414581e+00, 1.15687173795188044134e-01, 4.40291641615211203805e-03, 7.54720348287414296618e-05,
    4.51850092970580378464e-07,
)
_AI_COS_P = (
    1.97339932091685679179e-02, 3.91103029615688277255e-01, 1.06579897599595591108e+00, 9.39169229816650230044e-01,
    3.51465656105547619242e-01, 6.33888919628925490927e-02, 5.85804113048388458567e-03, 2.82851600836737019778e-04,
    6.98793669997260967291e-06, 8.11789239554389293311e-08, 3.41551784765923618484e-10,
)
_AI_COS_Q = (
    1.0, 9.30892908077441974853e+00, 1.98352928718312140417e+01, 1.55646628932864612953e+01, 5.47686069422975497931e+00,
    9.54293611618961883998e-01, 8.64580826352392193095e-02, 4.12656523824222607191e-03, 1.01259085116509135510e-04,
    1.17166733214413521882e-06, 4.91834570062930015649e-09,
)
# Order 0: modulus and phase beyond 5, which J and Y share; then J and Y up to 5.
_P0_P = (
    7.96936729297347051624e-04, 8.28352392107440799803e-02, 1.23953371646414299388e+00, 5.44725003058768775090e+00,
    8.74716500199817011941e+00, 5.30324038235394892183e+00, 9.99999999999999997821e-01,
)
_P0_Q = (
    9.24408810558863637013e-04, 8.56288474354474431428e-02, 1.25352743901058953537e+00, 5.47097740330417105182e+00,
    8.76190883237069594232e+00, 5.30605288235394617618e+00, 1.00000000000000000218e+00,
)
_Q0_P = (
    -1.13663838898469149931e-02, -1.28252718670509318512e+00, -1.95539544257735972385e+01, -9.32060152123768231369e+01,
    -1.77681167980488050595e+02, -1.47077505154951170175e+02, -5.14105326766599330220e+01, -6.05014350600728481186e+00,
)
_Q0_Q = (
    1.0, 6.43178256118178023184e+01, 8.56430025976980587198e+02, 3.88240183605401609683e+03, 7.24046774195652478189e+03,
    5.93072701187316984827e+03, 2.06209331660327847417e+03, 2.42005740240291393179e+02,
)
_J0_P = (
    -4.79443220978201773821e+09, 1.95617491946556577543e+12, -2.49248344360967716204e+14, 9.70862251047306323952e+15,
)
_J0_Q = (
    1.0, 4.99563147152651017219e+02, 1.73785401676374683123e+05, 4.84409658339962045305e+07, 1.11855537045356834862e+10,
    2.11277520115489217587e+12, 3.10518229857422583814e+14, 3.18121955943204943306e+16, 1.71086294081043136091e+18,
)
_Y0_P = (
    1.55924367855235737965e+04, -1.46639295903971606143e+07, 5.43526477051876500413e+09, -9.82136065717911466409e+11,
    8.75906394395366999549e+13, -3.46628303384729719441e+15, 4.42733268572569800351e+16, -1.84950800436986690637e+16,
)
_Y0_Q = (
    1.0, 1.04128353664259848412e+03, 6.26107330137134956842e+05, 2.68919633393814121987e+08, 8.64002487103935000337e+10,
    2.02979612750105546709e+13, 3.17157752842975028269e+15, 2.50596256172653059228e+17,
)
# Order 1: modulus and phase beyond 5, which J and Y share; then J and Y up to 5.
_P1_P = (
    7.62125616208173112003e-04, 7.31397056940917570436e-02, 1.12719608129684925192e+00, 5.11207951146807644818e+00,
    8.42404590141772420927e+00, 5.21451598682361504063e+00, 1.00000000000000000254e+00,
)
_P1_Q = (
    5.71323128072548699714e-04, 6.88455908754495404082e-02, 1.10514232634061696926e+00, 5.07386386128601488557e+00,
    8.39985554327604159757e+00, 5.20982848682361821619e+00, 9.99999999999999997461e-01,
)
_Q1_P = (
    5.10862594750176621635e-02, 4.98213872951233449420e+00, 7.58238284132545283818e+01, 3.66779609360150777800e+02,
    7.10856304998926107277e+02, 5.97489612400613639965e+02, 2.11688757100572135698e+02, 2.52070205858023719784e+01,
)
_Q1_Q = (
    1.0, 7.42373277035675149943e+01, 1.05644886038262816351e+03, 4.98641058337653607651e+03, 9.56231892404756170795e+03,
    7.99704160447350683650e+03, 2.82619278517639096600e+03, 3.36093607810698293419e+02,
)
_J1_P = (
    -8.99971225705559398224e+08, 4.52228297998194034323e+11, -7.27494245221818276015e+13, 3.68295732863852883286e+15,
)
_J1_Q = (
    1.0, 6.20836478118054335476e+02, 2.56987256757748830383e+05, 8.35146791431949253037e+07, 2.21511595479792499675e+10,
    4.74914122079991414898e+12, 7.84369607876235854894e+14, 8.95222336184627338078e+16, 5.32278620332680085395e+18,
)
_Y1_P = (
    1.26320474790178026440e+09, -6.47355876379160291031e+11, 1.14509511541823727583e+14, -8.12770255501325109621e+15,
    2.02439475713594898196e+17, -7.78877196265950026825e+17,
)
_Y1_Q = (
    1.0, 5.94301592346128195359e+02, 2.35564092943068577943e+05, 7.34811944459721705660e+07, 1.87601316108706159478e+10,
    3.88231277496238566008e+12, 6.20557727146953693363e+14, 6.87141087355300489866e+16, 3.97270608116560655612e+18,
)
# Chebyshev series of K0: up to 2, and beyond.
_K0_SMALL = (
    1.37446543561352307156e-16, 4.25981614279661018399e-14, 1.03496952576338420167e-11, 1.90451637722020886025e-09,
    2.53479107902614945675e-07, 2.28621210311945178607e-05, 1.26461541144692592338e-03, 3.59799365153615016266e-02,
    3.44289899924628486886e-01, -5.35327393233902768720e-01,
)
_K0_LARGE = (
    5.30043377268626276149e-18, -1.64758043015242134646e-17, 5.21039150503902756861e-17, -1.67823109680541210385e-16,
    5.51205597852431940784e-16, -1.84859337734377901440e-15, 6.34007647740507060557e-15, -2.22751332699166985548e-14,
    8.03289077536357521100e-14, -2.98009692317273043925e-13, 1.14034058820847496303e-12, -4.51459788337394416547e-12,
    1.85594911495471785253e-11, -7.95748924447710747776e-11, 3.57739728140030116597e-10, -1.69753450938905987466e-09,
    8.57403401741422608519e-09, -4.66048989768794782956e-08, 2.76681363944501510342e-07, -1.83175552271911948767e-06,
    1.39498137188764993662e-05, -1.28495495816278026384e-04, 1.56988388573005337491e-03, -3.14481013119645005427e-02,
    2.44030308206595545468e+00,
)
# Chebyshev series of K1: up to 2, and beyond.
_K1_SMALL = (
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13, -1.41148839263352776110e-10,
    -2.21338763073472585583e-08, -2.43340614156596823496e-06, -1.73028895751305206302e-04, -6.97572385963986435018e-03,
    -1.22611180822657148235e-01, -3.53155960776544875667e-01, 1.52530022733894777053e+00,
)
_K1_LARGE = (
    -5.75674448366501715755e-18, 1.79405087314755922667e-17, -5.68946255844285935196e-17, 1.83809354436663880070e-16,
    -6.05704724837331885336e-16, 2.03870316562433424052e-15, -7.01983709041831346144e-15, 2.47715442448130437068e-14,
    -8.97670518232499435011e-14, 3.34841966607842919884e-13, -1.28917396095102890680e-12, 5.13963967348173025100e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11, -4.19035475934189648750e-10, 2.01504975519703286596e-09,
    -1.03457624656780970260e-08, 5.74108412545004946722e-08, -3.50196060308781257119e-07, 2.40648494783721712015e-06,
    -1.93619797416608296024e-05, 1.95215518471351631108e-04, -2.85781685962277938680e-03, 1.03923736576817238437e-01,
    2.72062619048444266945e+00,
)
# Squared zeros of J0 and J1, by which their approximations up to 5 are divided.
_J0_ZEROS = (5.78318596294678452118e00, 3.04712623436620863991e01)
_J1_ZEROS = (1.46819706421238932572e01, 4.92184563216946036703e01)
# Ai(0) and -Ai'(0), and the terms of the two series that they multiply (Abramowitz and Stegun, 10.4.3), in powers of x cubed.
_AI_0, _AI_SLOPE = 0.355028053887817239260, 0.258819403792806798405
_NUM_TERMS = 18
_AI_EVEN = tuple(accumulate(range(1, _NUM_TERMS), lambda term, k: term / (3 * k * (3 * k - 1)), initial=1.0))[::-1]
_AI_ODD = tuple(accumulate(range(1, _NUM_TERMS), lambda term, k: term / (3 * k * (3 * k + 1)), initial=1.0))[::-1]
_INV_SQRT_PI = 1 / math.sqrt(math.pi)
_SINC = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1))


def _airy_ai(x: Array) -> Array:
    """Infinities give NaN, of either sign, as in ATen.

    Differs: ATen leaves out the leading coefficient, one, of two denominators, and is off by 3e-6 between -10 and -2.
    """
    size = jnp.sqrt(jnp.abs(x))
    zeta = jnp.abs(x + x) * size / constant(3, x.dtype)
    scale = jnp.divide(constant(_INV_SQRT_PI, x.dtype), jnp.sqrt(size))
    w = jnp.divide(constant(1, x.dtype), zeta)
    decaying = scale * ratio(w, _AI_P, _AI_Q) / (constant(2, x.dtype) * jnp.exp(zeta))
    phase, z = zeta + constant(np.pi / 4, x.dtype), w * w
    sine = jnp.sin(phase) * (constant(1, x.dtype) + z * ratio(z, _AI_SIN_P, _AI_SIN_Q))
    waving = scale * (sine - jnp.cos(phase) * w * ratio(z, _AI_COS_P, _AI_COS_Q))
    cube = x * x * x
    even, odd = polynomial(cube, _AI_EVEN), x * polynomial(cube, _AI_ODD)
    near = constant(_AI_0, x.dtype) * even - constant(_AI_SLOPE, x.dtype) * odd
    value = jnp.where(x >= 2.09, decaying, jnp.where(x < -2.09, waving, near))
    value = jnp.where(x > 103.892, constant(0, x.dtype), value)
    return jnp.where(jnp.isinf(x), constant(np.nan, x.dtype), value)


def _far(x: Array, order: int) -> tuple[Array, Array]:
    """J and Y of positive arguments beyond 5, from modulus and phase (Abramowitz and Stegun, 9.2.5 and 9.2.6).

    Differs: ATen leaves out the leading coefficient, one, of some denominators, and is off by up to 9e-7, most just above 5.
    """
    p, q = ((_P0_P, _P0_Q), (_Q0_P, _Q0_Q)) if order == 0 else ((_P1_P, _P1_Q), (_Q1_P, _Q1_Q))
    w = jnp.divide(constant(5, x.dtype), x)
    along, across = ratio(w * w, *p), w * ratio(w * w, *q)
    phase = x - constant(np.pi / 4 + order * np.pi / 2, x.dtype)
    sine, cosine, scale = jnp.sin(phase), jnp.cos(phase), constant(math.sqrt(2 / math.pi), x.dtype) / jnp.sqrt(x)
    return (along * cosine - across * sine) * scale, (along * sine + across * cosine) * scale


def _less_zeros(square: Array, zeros: tuple[float, float]) -> Array:
    return (square - constant(zeros[0], square.dtype)) * (square - constant(zeros[1], square.dtype))


def _bessel_j0(x: Array) -> Array:
    x = jnp.abs(x)
    square = x * x
    near = _less_zeros(square, _J0_ZEROS) * ratio(square, _J0_P, _J0_Q)
    tiny = constant(1, x.dtype) - square * constant(0.25, x.dtype)
    return jnp.where(x <= 5, jnp.where(x < 1e-5, tiny, near), _far(x, 0)[0])


def _bessel_j1(x: Array) -> Array:
    size = jnp.abs(x)
    square = x * x
    near = ratio(square, _J1_P, _J1_Q) * _less_zeros(square, _J1_ZEROS) * x
    far = _far(size, 1)[0]
    return jnp.where(size <= 5, near, jnp.where(x < 0, -far, far))


def _at_pole(x: Array, pole: float, value: Array) -> Array:
    """With the pole at zero, and NaN to the left of it."""
    return jnp.where(x == 0, constant(pole, x.dtype), jnp.where(x < 0, constant(np.nan, x.dtype), value))


def _bessel_y0(x: Array) -> Array:
    near = ratio(x * x, _Y0_P, _Y0_Q) + constant(2 / np.pi, x.dtype) * jnp.log(x) * _bessel_j0(x)
    return _at_pole(x, -np.inf, jnp.where(x <= 5, near, _far(x, 0)[1]))


def _bessel_y1(x: Array) -> Array:
    singular = _bessel_j1(x) * jnp.log(x) - constant(1, x.dtype) / x
    near = x * ratio(x * x, _Y1_P, _Y1_Q) + constant(2 / np.pi, x.dtype) * singular
    return _at_pole(x, -np.inf, jnp.where(x <= 5, near, _far(x, 1)[1]))


def _log_of_half(x: Array) -> Array:
    """Not halved where the half would be subnormal."""
    half = jnp.log(x * constant(0.5, x.dtype))
    return jnp.where(x < 4 * jnp.finfo(x.dtype).tiny, jnp.log(x) - constant(math.log(2), x.dtype), half)


def _modified(order: int, scaled: bool) -> Callable[[Array], Array]:
    """K of order 0 or 1 (Abramowitz and Stegun, 9.6.13 and 9.6.11), or that times the exponential of the argument."""
    small, large = (_K0_SMALL, _K0_LARGE) if order == 0 else (_K1_SMALL, _K1_LARGE)

    def function(x: Array) -> Array:
        series, logarithm = chebyshev_series(x * x - constant(2, x.dtype), small), _log_of_half(x)
        near = series - logarithm * jsp.i0(x) if order == 0 else logarithm * jsp.i1(x) + series / x
        far = chebyshev_series(jnp.divide(constant(8, x.dtype), x) - constant(2, x.dtype), large) / jnp.sqrt(x)
        near, far = (near * jnp.exp(x), far) if scaled else (near, jnp.exp(-x) * far)
        return _at_pole(x, np.inf, jnp.where(x <= 2, near, far))

    return function


def _spherical_bessel_j0(x: Array) -> Array:
    value = jnp.where(jnp.abs(x) < 0.5, polynomial(x * x, _SINC), jnp.sin(x) / x)
    return jnp.where(jnp.isinf(x), constant(0, x.dtype), value)


def _rule(function: Callable[[Array], Array]) -> Callable[[RuleContext, Array], Array]:
    def rule(ctx: RuleContext, x: Array) -> Array:
        (argument,) = to_float(ctx, x)
        return function(argument)

    return rule


BESSEL = {
    "aten::special_airy_ai": _airy_ai,
    "aten::special_bessel_j0": _bessel_j0,
    "aten::special_bessel_j1": _bessel_j1,
    "aten::special_bessel_y0": _bessel_y0,
    "aten::special_bessel_y1": _bessel_y1,
    "aten::special_modified_bessel_k0": _modified(0, scaled=False),
    "aten::special_modified_bessel_k1": _modified(1, scaled=False),
    "aten::special_scaled_modified_bessel_k0": _modified(0, scaled=True),
    "aten::special_scaled_modified_bessel_k1": _modified(1, scaled=True),
    "aten::special_spherical_bessel_j0": _spherical_bessel_j0,
}
lower_table(BESSEL, _rule)
