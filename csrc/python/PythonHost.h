#pragma once

namespace tpu {

void install_host();
void install_lowering();
void set_available(bool available);
void set_guessed_devices(int count); // what device_count() says before JAX has started

} // namespace tpu
