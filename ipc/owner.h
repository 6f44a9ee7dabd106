// SPDX-License-Identifier: Apache-2.0
// Owner of a client's work: a Slurm job, a container of a pod, a program of a user.

#ifndef GPUSHARED_IPC_OWNER_H_
#define GPUSHARED_IPC_OWNER_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "gpushared/result.h"

namespace gpushared::ipc {

// Property of an owner. Its name is also that of the JSON field and of the label in metrics. Where
// dcgm-exporter has the same label, the label has the same name.
struct OwnerField {
  std::string_view name;
  std::size_t bytes_max;
  bool is_of_endpoint;  // Whether the rule of an endpoint may set the property.
};
inline constexpr std::array<OwnerField, 7> kOwnerFields = {{{"uid", 10, false},
                                                            {"hpc_job", 32, true},
                                                            {"hpc_step", 32, true},
                                                            {"namespace", 63, true},
                                                            {"pod", 253, true},
                                                            {"container", 63, true},
                                                            {"program", 16, false}}};
// Size of the largest result of Owner::ToRow with a terminator, rounded up.
inline constexpr std::size_t kOwnerBytes = 480;

// Values of kOwnerFields. All are printable; those that are unknown are empty.
//
// Thread-compatible value.
class Owner {
 public:
  // Parses "hpc_job:7,hpc_step:0", as in the rule of an endpoint. kInvalidArgument for names and
  // values that such a rule may not have.
  static Result<Owner> Parse(std::string_view text);
  // The inverse of ToRow, for texts of any origin: fields that are missing or invalid are empty.
  static Owner FromRow(std::string_view row);

  const std::string& Get(std::string_view name) const;
  // Truncates the value to the field's size and replaces characters that are not printable.
  void Set(std::string_view name, std::string_view value);
  // Returns the values in the order of kOwnerFields, each followed by a line break. Owners with the
  // same text have the same values, because no printable value contains a line break.
  std::string ToRow() const;

  // Calls the function with the name and the value of each known field.
  template <typename Function>
  void ForEach(const Function& function) const {
    for (std::size_t i = 0; i < kOwnerFields.size(); ++i) {
      if (!values_[i].empty()) function(kOwnerFields[i].name, values_[i]);
    }
  }

 private:
  std::array<std::string, kOwnerFields.size()> values_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_OWNER_H_
