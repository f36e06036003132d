// Debug mode lets the CPU do first what can go wrong because of a value: an index out of bounds, a division of integers
// by zero, a probability of two. The error is then the CPU's own, on the user's line.
#pragma once

#include "csrc/record/Signature.h"

namespace tpu {

// Runs the call on copies of its arguments on the CPU and forgets what comes out.
// Throws what the CPU throws.
void rehearse(const Call& call);

} // namespace tpu
