// Compiled programs in memory, the least recently used dropped first. Guarded by the GIL.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/device/Hash.h"
#include "csrc/python/Objects.h"
#include "csrc/record/Program.h"

namespace tpu {

// A compiled program, and how its arguments and results are laid out.
struct CompiledProgram {
  py::object executable;
  std::vector<uint32_t> arguments; // inputs, in the order in which it takes them
  std::vector<uint32_t> results;   // values, in the order in which it returns them
  std::vector<SlotRef> uses;       // where each run-time number goes
  std::array<size_t, kNumSlotClasses> num_slots{};
  int64_t transient_bytes = 0;
  uint64_t last_used = 0;
};

class ProgramCache {
 public:
  // The program under this very key, or null.
  std::shared_ptr<CompiledProgram> find(const Hash128& key);
  // The same program compiled under other patterns of equal numbers.
  std::vector<std::shared_ptr<CompiledProgram>> variants(const Hash128& structure);
  void insert(const Hash128& key, const Hash128& structure, std::shared_ptr<CompiledProgram> program);
  void note_use(CompiledProgram& program) { program.last_used = ++clock_; }
  void set_max_programs(size_t max_programs);
  void clear();
  size_t size() const { return exact_.size(); }

 private:
  void drop_oldest();

  std::unordered_map<Hash128, std::shared_ptr<CompiledProgram>> exact_;
  std::unordered_map<Hash128, std::vector<std::weak_ptr<CompiledProgram>>> by_structure_;
  size_t max_programs_ = 512;
  uint64_t clock_ = 0;
};
ProgramCache& program_cache();

} // namespace tpu
