/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the C interface up to the point where a server is needed. */
#include <stdio.h>

#include "gpushared/gpushared.h"

int main(void) {
  gpushared_client_options options;
  gpushared_client* client = NULL;
  gpushared_client_options_init(&options);
  options.socket = "/nonexistent/gpushared.sock";
  printf("version %s, headers %s\n", gpushared_version(), GPUSHARED_VERSION_STRING);
  const gpushared_status_t status = gpushared_connect(&options, &client);
  printf("%s: %s\n", gpushared_status_name(status), gpushared_last_error_message());
  gpushared_destroy_client(client);
  return status == GPUSHARED_UNAVAILABLE ? 0 : 1;
}
