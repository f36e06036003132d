// Turning a recorded program into a running executable.
#pragma once

#include "csrc/python/Objects.h"
#include "csrc/record/Program.h"

namespace tpu {

// Compiles on a miss, launches, and gives every live buffer its array. Needs the GIL. On an error nothing is lost that
// was not donated: mutated buffers regain their values, values never computed are poisoned.
void launch(Program& program, const char* reason, bool keep_roots);

} // namespace tpu
