"""A function of a module translated, instruction by instruction, into steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxsearch.emulator.arithmetic import encode
from ptxsearch.emulator.code import Code, Place, Step
from ptxsearch.emulator.definite import uncertain_registers
from ptxsearch.emulator.halt import Refused
from ptxsearch.emulator.memory import PARAM_WINDOW
from ptxsearch.emulator.operation import STORAGE, WIDTHS, Array
from ptxsearch.ptx.syntax import (
    Address,
    Float,
    Function,
    Instruction,
    Integer,
    Name,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from ptxsearch.emulator.program import Program

Builder = Callable[["Translator", Instruction], Step]

FRAME_GAP = 16
VECTOR_PARTS = frozenset("xyzwrgba")
"""Components of a vector register; other components select bytes within one register."""
CARRY = "%carry"
DYNAMIC_SPECIALS = frozenset(
    {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
)


class Translator:
    """Turns the operands of one function into slots and its instructions into steps."""

    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.function = function
        self.code = Code(function)
        self._constants: dict[tuple[str, int], int] = {}
        self._specials: dict[tuple[str, str], int] = {}
        self._locals: dict[str, int] = {}
        self.pc = 0
        self._lay_out()

    def translate(self, builders: Callable[[Instruction], Builder]) -> Code:
        """The code of the function; `builders` finds the builder of an instruction."""
        code, function = self.code, self.function
        for self.pc, instruction in enumerate(function.instructions):
            code.steps.append(builders(instruction)(self, instruction))
        code.leaders = frozenset(function.labels.values())
        code.uncertain = uncertain_registers(code, function)
        return code

    def _lay_out(self) -> None:
        """Give every variable that lives in the frame its place in local memory."""
        function = self.function
        variables = [v for v in function.variables if v.space in ("local", "param")]
        if not function.is_entry:
            variables += [v for v in (*function.params, *function.returns) if v.space == "param"]
        at = 0
        for variable in variables:
            align = max(variable.align, 16)
            at = -(-at // align) * align
            self.code.places[variable.name] = Place(
                variable.name, variable.space, at, max(variable.size, 1)
            )
            at += max(variable.size, 1) + FRAME_GAP
        self.code.frame_bytes = -(-at // 16) * 16

    def register_type(self, register: Register) -> str:
        """The declared type of a register or of its component."""
        declared = self.function.registers.get(register.name, "")
        if not declared:
            declared = next(
                (
                    v.type
                    for v in (*self.function.params, *self.function.returns)
                    if v.name == register.name
                ),
                "b32",
            )
        return declared.rpartition(".")[2]

    def register(self, register: Register) -> int:
        """The slot of a register."""
        name = register.name
        if register.component in VECTOR_PARTS:
            name = f"{register.name}.{register.component}"
        slot = self.code.slots.get(name)
        if slot is None:
            slot = self.named(name)
            self.code.kinds[slot] = self.storage(register)
            self.code.widths[slot] = self.code.kinds[slot].itemsize
        return slot

    def named(self, name: str) -> int:
        """The slot of a register by its full name."""
        slot = self.code.slots.get(name)
        if slot is None:
            slot = self.code.slots[name] = self.code.new_slot()
        return slot

    def storage(self, register: Register) -> np.dtype[Any]:
        """The dtype a register is stored in."""
        return STORAGE[min(WIDTHS[self.register_type(register)], 64)]

    def constant(self, value: Any) -> int:
        """A slot that always holds the one numpy value."""
        key = (value.dtype.str, int(value))
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = self.code.new_slot()
            self.code.constants[slot] = np.array([value])
        return slot

    def number(self, value: int, type_: str) -> int:
        """A slot that always holds an integer read as a type."""
        return self.constant(encode(Integer(value), type_))

    def special(self, name: str, type_: str = "") -> int:
        """The slot of a special register, widened or cut to a type where one is given."""
        if name in DYNAMIC_SPECIALS:
            raise Refused(f"{name} can only be read by mov")
        slot = self._specials.get((name, type_))
        if slot is None:
            slot = self._specials[name, type_] = self.code.new_slot()
            self.code.specials[slot] = name
            if type_:
                self.code.kinds[slot] = STORAGE[min(WIDTHS[type_], 64)]
        return slot

    def source(self, operand: Operand, type_: str) -> int:
        """The slot that holds an operand read as a type."""
        match operand:
            case Register():
                return self.register(operand)
            case Integer() | Float():
                return self.constant(encode(operand, type_))
            case Special():
                return self.special(operand.name, type_)
            case Name(name):
                return self.address_of(name, type_)
            case Address(base, offset) if isinstance(base, Name):
                return self.address_of(base.name, type_, offset)
        raise Refused(f"an operand of kind {type(operand).__name__} cannot be read here")

    def target(self, operand: Operand) -> int:
        """The slot that an instruction writes; -1 for the sink."""
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, Sink):
            return -1
        raise Refused(f"an operand of kind {type(operand).__name__} cannot be written")

    def address_of(self, name: str, type_: str, offset: int = 0) -> int:
        """A slot with the address of a variable or function in its own space."""
        place = self.code.places.get(name)
        if place is not None:
            key = f"{name}+{offset}"
            slot = self._locals.get(key)
            if slot is None:
                slot = self._locals[key] = self.code.new_slot()
                self.code.locals[slot] = place.start + offset
            return slot
        address = self.program.address(name, self.function)
        return self.number(address + offset, "b32" if WIDTHS.get(type_) == 32 else "b64")

    def variable(self, name: str) -> Variable | None:
        """The variable or parameter of that name as this function sees it."""
        function = self.function
        for variable in (*function.variables, *function.params, *function.returns):
            if variable.name == name:
                return variable
        return self.program.module.variables.get(name)

    def address(self, operand: Operand, space: str) -> tuple[int, int, str]:
        """Slot, byte offset and space of an address operand.

        A parameter of a device function or of a call lives in local memory.
        """
        if isinstance(operand, Name):
            operand = Address(operand, 0)
        if isinstance(operand, Register):
            operand = Address(operand, 0)
        if not isinstance(operand, Address):
            raise Refused(f"an operand of kind {type(operand).__name__} is no address")
        base, offset = operand.base, operand.offset
        if isinstance(base, Register):
            return self.register(base), offset, space
        if base is None:
            return self.number(0, "b64"), offset, space
        if base.name in self.code.places:
            return self.address_of(base.name, "b64"), offset, "local"
        variable = self.variable(base.name)
        if variable is not None and not space:
            space = variable.space
        if variable is not None and variable.space == "param":
            return (
                self.number(self.program.address(base.name, self.function), "b64"),
                offset,
                "param",
            )
        return self.address_of(base.name, "b64"), offset, space

    def is_parameter(self, operand: Operand) -> bool:
        """Whether an address operand names a parameter of a function or call."""
        base = operand.base if isinstance(operand, Address) else operand
        place = self.code.places.get(base.name) if isinstance(base, Name) else None
        return place is not None and place.space == "param"

    def flattened(self, operand: Operand) -> tuple[Operand, ...]:
        """The scalar operands of a vector, a pair or a vector register."""
        if isinstance(operand, Vector):
            return operand.elements
        if isinstance(operand, Pair):
            return (operand.first, operand.second)
        if isinstance(operand, Register) and not operand.component:
            declared = self.function.registers.get(operand.name, "")
            if declared.startswith("v") and "." in declared:
                count = int(declared[1 : declared.index(".")])
                return tuple(Register(operand.name, part) for part in "xyzw"[:count])
        return (operand,)

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """The slot of a predicate operand and whether it is read inverted."""
        if isinstance(operand, Negated):
            return self.register(operand.register), True
        return self.source(operand, "pred"), False


def entry_parameters(function: Function) -> tuple[dict[str, int], int]:
    """The offset of each parameter of an entry in its parameter block, and the block's size."""
    offsets: dict[str, int] = {}
    at = 0
    for parameter in function.params:
        at = -(-at // parameter.align) * parameter.align
        offsets[parameter.name] = at
        at += parameter.size
    return offsets, at


def parameter_address(offset: int) -> int:
    """The generic address of a byte of the parameter block."""
    return PARAM_WINDOW + offset


Values = list[Array]
