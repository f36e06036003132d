#include "csrc/python/ProgramCache.h"

#include <algorithm>

namespace tpu {

std::shared_ptr<CompiledProgram> ProgramCache::find(const Hash128& key) {
  auto found = exact_.find(key);
  return found == exact_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<CompiledProgram>> ProgramCache::variants(const Hash128& structure) {
  std::vector<std::shared_ptr<CompiledProgram>> result;
  auto found = by_structure_.find(structure);
  if (found != by_structure_.end()) {
    for (const auto& candidate : found->second) {
      if (auto program = candidate.lock()) {
        result.push_back(std::move(program));
      }
    }
  }
  return result;
}

void ProgramCache::insert(const Hash128& key, const Hash128& structure, std::shared_ptr<CompiledProgram> program) {
  while (exact_.size() >= max_programs_) {
    drop_oldest();
  }
  by_structure_[structure].push_back(program);
  exact_[key] = std::move(program);
}

void ProgramCache::drop_oldest() {
  auto oldest = std::min_element(exact_.begin(), exact_.end(), [](const auto& a, const auto& b) {
    return a.second->last_used < b.second->last_used;
  });
  exact_.erase(oldest);
  for (auto it = by_structure_.begin(); it != by_structure_.end();) {
    auto& variants = it->second;
    variants.erase(
        std::remove_if(variants.begin(), variants.end(), [](const auto& program) { return program.expired(); }),
        variants.end());
    it = variants.empty() ? by_structure_.erase(it) : std::next(it);
  }
}

void ProgramCache::set_max_programs(size_t max_programs) {
  max_programs_ = std::max<size_t>(max_programs, 1);
}

void ProgramCache::clear() {
  exact_.clear();
  by_structure_.clear();
}

ProgramCache& program_cache() {
  static auto* cache = new ProgramCache();
  return *cache;
}

} // namespace tpu
