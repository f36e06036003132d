#include "csrc/record/Op.h"

#include <cstring>

#include "csrc/device/Hash.h"
#include "csrc/record/Lowering.h"

namespace tpu {

namespace {

// How many different values a fill of one shape may have before its value becomes an input. Zeros, ones and a mask's
// infinity are ordinary; more than these is a number that changes.
constexpr size_t kMaxStaticFills = 4;

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

std::optional<double> number_of(const std::optional<c10::IValue>& value) {
  if (value.has_value() && (value->isDouble() || value->isInt() || value->isBool())) {
    return value->toScalar().toDouble();
  }
  return std::nullopt;
}

} // namespace

OpInfo::OpInfo(const c10::OperatorHandle& op) : handle(op), name(full_name(op.schema())), hash(hash_text(name)) {
  const auto& schema = op.schema();
  for (const auto& argument : schema.arguments()) {
    ArgInfo info;
    info.written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    info.default_number = number_of(argument.default_value());
    const std::string type = argument.type()->str();
    const int index = static_cast<int>(args.size());
    if (type.find("Device") != std::string::npos) {
      device_arg = index;
    } else if (type.find("Generator") != std::string::npos) {
      generator_arg = index;
    } else if (argument.name() == "check_errors") {
      check_errors_arg = index;
    }
    args.push_back(info);
  }
  lowering().describe(*this);
}

bool OpInfo::promoted(uint64_t shape_hash, double value) {
  auto& values = seen_[shape_hash];
  if (values.size() > kMaxStaticFills) {
    return true;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  values.insert(bits);
  return values.size() > kMaxStaticFills;
}

} // namespace tpu
