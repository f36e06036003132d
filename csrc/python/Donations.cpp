#include "csrc/python/Donations.h"

#include <algorithm>
#include <unordered_map>

#include "csrc/python/Objects.h"

namespace tpu {

namespace {

std::vector<std::pair<uint32_t, uint32_t>> find_replacements(const Program& program,
                                                             const std::vector<uint32_t>& outputs) {
  std::unordered_map<const TpuBuffer*, uint32_t> before;
  before.reserve(program.restores.size());
  for (const Restore& restore : program.restores) {
    if (restore.input != kNoInput) {
      before[restore.buffer] = restore.input; // the newest, if it was given content from outside in between
    }
  }
  std::vector<std::pair<uint32_t, uint32_t>> replacements;
  for (uint32_t output : outputs) {
    const Value& value = program.values[output];
    auto found = before.find(value.buffer);
    if (found != before.end() && program.inputs[found->second].desc == value.desc) {
      replacements.emplace_back(found->second, output);
    }
  }
  return replacements;
}

bool is_seen_elsewhere(const Input& input) {
  return !input.array.unique() || Py_REFCNT(static_cast<PyObject*>(input.array.object())) != 1;
}

} // namespace

Donations choose_donations(const Program& program, const std::vector<uint32_t>& outputs) {
  std::unordered_map<const Desc*, int> takers;
  for (uint32_t output : outputs) {
    takers[program.values[output].desc] += 1;
  }
  std::vector<uint8_t> donated(program.inputs.size(), 0);
  auto donate = [&](uint32_t index) {
    const Input& input = program.inputs[index];
    if (donated[index] == 0 && takers[input.desc] > 0 && !is_seen_elsewhere(input)) {
      takers[input.desc] -= 1;
      donated[index] = 1;
    }
    return donated[index] != 0;
  };
  Donations result;
  for (const auto& pair : find_replacements(program, outputs)) { // these first: they are computed in place
    if (donate(pair.first)) {
      result.replacements.push_back(pair);
    }
  }
  for (uint32_t index = 0; index < program.inputs.size(); ++index) {
    if (donate(index)) {
      result.inputs.push_back(index);
    }
  }
  return result;
}

Donations possible_donations(const Program& program, const std::vector<uint32_t>& outputs) {
  Donations result;
  for (const Restore& restore : program.restores) {
    if (restore.input != kNoInput && !program.inputs[restore.input].array) {
      result.inputs.push_back(restore.input);
    }
  }
  std::sort(result.inputs.begin(), result.inputs.end());
  for (const auto& pair : find_replacements(program, outputs)) {
    if (std::binary_search(result.inputs.begin(), result.inputs.end(), pair.first)) {
      result.replacements.push_back(pair);
    }
  }
  return result;
}

} // namespace tpu
