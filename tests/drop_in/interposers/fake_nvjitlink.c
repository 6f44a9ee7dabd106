// SPDX-License-Identifier: Apache-2.0
// A libnvJitLink that only links LTO-IR to PTX. Its LTO-IR is PTX text; its result is the
// concatenation of its inputs. Inputs that begin with kUncalled are dropped unless an anchor came
// before.
#include <stdlib.h>
#include <string.h>

static const char kUncalled[] = "// uncalled\n";

struct Link {
  char text[4096];
  int has_anchor;
};

int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  *major = 13;
  *minor = 7;
  return 0;
}

int nvJitLinkCreate(struct Link** link, unsigned count, const char** options) {
  int is_lto = 0, is_ptx = 0;
  for (unsigned i = 0; i < count; ++i) {
    is_lto |= strcmp(options[i], "-lto") == 0;
    is_ptx |= strcmp(options[i], "-ptx") == 0;
  }
  if (!is_lto || !is_ptx) return 11;  // NVJITLINK_ERROR_INCOMPATIBLE_OPTIONS
  *link = calloc(1, sizeof **link);
  return 0;
}

int nvJitLinkDestroy(struct Link** link) {
  free(*link);
  *link = NULL;
  return 0;
}

int nvJitLinkAddData(struct Link* link, int type, const void* data, size_t bytes,
                     const char* name) {
  if (type != 3 || name == NULL) return 12;  // NVJITLINK_ERROR_INCORRECT_INPUT_TYPE
  char text[1024] = "";
  strncat(text, data, bytes < sizeof text ? bytes : sizeof text - 1);
  link->has_anchor |= strstr(text, ".entry gpushared_anchor(") != NULL;
  if (strncmp(text, kUncalled, strlen(kUncalled)) == 0 && !link->has_anchor) {
    strcat(link->text, "// dropped\n.version 7.0\n.target sm_75\n.address_size 64\n");
    return 0;
  }
  strcat(link->text, text);
  return 0;
}

int nvJitLinkComplete(struct Link* link) { return link->text[0] == '\0' ? 9 : 0; }

int nvJitLinkGetLinkedPtxSize(struct Link* link, size_t* bytes) {
  *bytes = strlen(link->text) + 1;
  return 0;
}
int nvJitLinkGetLinkedPtx(struct Link* link, char* text) {
  strcpy(text, link->text);
  return 0;
}

int nvJitLinkGetErrorLogSize(struct Link* link, size_t* bytes) {
  *bytes = sizeof "the real log";
  return link == NULL;
}
int nvJitLinkGetErrorLog(struct Link* link, char* log) {
  strcpy(log, "the real log");
  return link == NULL;
}
