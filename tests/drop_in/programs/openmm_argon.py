# SPDX-License-Identifier: Apache-2.0
"""OpenMM moves 125 atoms of argon with kernels that it compiles with NVRTC."""
import openmm
from openmm import unit


def context_on(platform):
    system = openmm.System()
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.NoCutoff)
    system.addForce(force)
    for _ in range(125):
        system.addParticle(39.9)
        force.addParticle(0, 0.34, 0.98)
    context = openmm.Context(system, openmm.VerletIntegrator(0.002), openmm.Platform.getPlatformByName(platform))
    context.setPositions([openmm.Vec3(i % 5, i // 5 % 5, i // 25) * 0.37 for i in range(125)])
    return context


def energies(context):
    state = context.getState(getEnergy=True)
    both = (state.getPotentialEnergy(), state.getKineticEnergy())
    return [energy.value_in_unit(unit.kilojoule_per_mole) for energy in both]


device, reference = context_on("CUDA"), context_on("Reference")
for steps in (0, 20):
    for context in (device, reference):
        context.getIntegrator().step(steps)
    for found, expected in zip(energies(device), energies(reference)):
        assert abs(found - expected) < 1e-3 * max(1, abs(expected)), (steps, found, expected)
