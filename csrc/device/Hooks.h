#pragma once

namespace tpu {

void register_hooks();

} // namespace tpu
