// Which inputs of a program give their memory to its outputs.
#pragma once

#include <utility>
#include <vector>

#include "csrc/record/Program.h"

namespace tpu {

struct Donations {
  std::vector<uint32_t> inputs; // in ascending order
  // Of a donated input by an output: what a buffer held before the program and holds after it, alike in shape and
  // dtype.
  std::vector<std::pair<uint32_t, uint32_t>> replacements;
};

// An input is donated when nothing else can see its array, and an output could take its place. With the GIL.
Donations choose_donations(const Program& program, const std::vector<uint32_t>& outputs);

// The same for a program without values: whatever it overwrites could be donated.
Donations possible_donations(const Program& program, const std::vector<uint32_t>& outputs);

} // namespace tpu
