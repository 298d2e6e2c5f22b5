"""The body of a function: statements flattened into one instruction list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptxsearch.ptx import limits
from ptxsearch.ptx.annotation import pragma, skip_file, skip_section, source_place
from ptxsearch.ptx.constant import integer
from ptxsearch.ptx.declaration import formals, index_bytes, registers, variables
from ptxsearch.ptx.operand import Operands
from ptxsearch.ptx.scope import Pending, Scopes
from ptxsearch.ptx.syntax import (
    Address,
    Group,
    Guard,
    Instruction,
    Name,
    Operand,
    Pair,
    Register,
    Source,
    Variable,
    Vector,
)
from ptxsearch.ptx.tokens import END, Tokens, suggestion
from ptxsearch.ptx.vocabulary import (
    ADDRESS_OPCODES,
    BODY_DIRECTIVES,
    MEMORY_OPERAND,
    OPCODES,
    OPERAND_COUNTS,
)

Signature = tuple[tuple[Variable, ...], tuple[Variable, ...]]
_ENDS = frozenset({",", ";"})
_NO_GROUP = Group(())


class Body:
    """Reads statements from after the `{` of a function up to its `}`."""

    def __init__(self, tokens: Tokens, scopes: Scopes, files: Mapping[int, str]) -> None:
        self.tokens = tokens
        self.scopes = scopes
        self.files = files
        self.operands = Operands(tokens, scopes)
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.prototypes: dict[str, Signature] = {}
        self.variables: list[Variable] = []
        self.pragmas: list[tuple[int, str]] = []
        self.source: Source | None = None
        self._mnemonics: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._opened: list[int] = [tokens.at - 1]

    def read(self) -> None:
        """Read every statement; the cursor ends up behind the closing brace."""
        tokens = self.tokens
        while self._opened:
            text = tokens.take()
            if text == "}":
                self._opened.pop()
                self._close()
            elif text == "{":
                self._opened.append(tokens.at - 1)
                self.scopes.open()
            elif text[:1] == ".":
                self._directive(text[1:])
            elif text == "@":
                self._guarded()
            elif text == END:
                tokens.fail("'{' is never closed; add the missing '}'", self._opened[-1])
            elif tokens.next == ":":
                self._label(text)
            elif text != ";":
                self._instruction(text, None)

    def _close(self) -> None:
        """Leave a scope: uses of its labels get the labels' unique names."""
        renames: dict[int | str, dict[str, str]] = {}
        for use, unique in self.scopes.close():
            if use.name != unique:
                renames.setdefault(use.slot, {})[use.name] = unique
        for slot, new in renames.items():
            if isinstance(slot, str):
                self.tables[slot] = tuple(new.get(name, name) for name in self.tables[slot])
            else:
                instruction = self.instructions[slot]
                renamed = tuple(_renamed(operand, new) for operand in instruction.operands)
                self.instructions[slot] = replace(instruction, operands=renamed)

    def _label(self, text: str) -> None:
        tokens = self.tokens
        tokens.at -= 1
        name = self.scopes.label(tokens.identifier("a label"))
        tokens.at += 1
        if tokens.next in (".branchtargets", ".calltargets"):
            tokens.at += 1
            self._table(name)
        elif tokens.next == ".callprototype":
            tokens.at += 1
            self._prototype(name)
        else:
            self.labels[name] = len(self.instructions)

    def _table(self, label: str) -> None:
        tokens = self.tokens
        names: list[str] = []
        while True:
            start = tokens.at
            name = tokens.identifier("a target")
            if not isinstance(self.scopes.resolve(name), Name):
                self.scopes.top.pending.append(Pending(name, label, start))
            names.append(name)
            if not tokens.accept(","):
                break
        tokens.expect(";", "a list of targets")
        self.tables[label] = tuple(names)

    def _prototype(self, label: str) -> None:
        tokens = self.tokens
        returns = formals(tokens, self.scopes, named=False) if tokens.next == "(" else ()
        tokens.identifier("a prototype") if tokens.next != "_" else tokens.take()
        params = formals(tokens, self.scopes, named=False) if tokens.next == "(" else ()
        while tokens.next in (".noreturn", ".abi_preserve", ".abi_preserve_control"):
            if tokens.take() != ".noreturn":
                integer(tokens, "a number of registers")
        tokens.expect(";", "a call prototype")
        self.prototypes[label] = (returns, params)

    def _directive(self, word: str) -> None:
        tokens = self.tokens
        if word == "reg":
            registers(tokens, self.scopes)
        elif word == "loc":
            self.source = source_place(tokens, self.files)
        elif word in ("param", "shared", "local", "const", "global"):
            self._variables(word, "")
        elif word in ("extern", "weak", "visible", "common") and tokens.next[1:] in (
            "shared",
            "const",
            "global",
        ):
            self._variables(tokens.take()[1:], word)
        elif word == "pragma":
            self.pragmas.append((len(self.instructions), pragma(tokens)))
        elif word == "section":
            skip_section(tokens)
        elif word == "file":
            skip_file(tokens)
        elif tokens.next == ":":
            tokens.fail(
                f"a label cannot begin with a dot; write '{word}:' and 'bra {word}'", tokens.at - 1
            )
        else:
            tokens.fail(
                f"'.{word}' is no directive of a function body{suggestion(word, BODY_DIRECTIVES)}",
                tokens.at - 1,
            )

    def _variables(self, space: str, linkage: str) -> None:
        declared = variables(
            self.tokens, self.scopes, space=space, linkage=linkage, declare=self.scopes.variable
        )
        for variable in declared:
            self.scopes.element_bytes[variable.name] = index_bytes(variable)
        self.variables += declared

    def _guarded(self) -> None:
        tokens = self.tokens
        negated = tokens.accept("!")
        start = tokens.at
        text = tokens.take()
        register = self.scopes.resolve(text)
        if not isinstance(register, Register):
            if text[:1].isalpha() or text[:1] in ("%", "_", "$"):
                self.scopes.undeclared(text, start)
            tokens.fail("'@' is followed by a predicate register", start)
        if tokens.next == "{":
            tokens.fail("a guard applies to one instruction, not to a block; branch around it")
        self._instruction(tokens.take(), Guard(register, negated))

    def _instruction(self, text: str, guard: Guard | None) -> None:
        tokens = self.tokens
        start = tokens.at - 1
        split = self._mnemonics.get(text)
        if split is None:
            split = self._mnemonics[text] = self._split(text, start)
        opcode, modifiers = split
        self.operands.slot = len(self.instructions)
        if self.operands.slot >= limits.INSTRUCTIONS:
            tokens.fail(f"more than {limits.INSTRUCTIONS} instructions; make the kernel smaller")
        if opcode == "call":
            operands = self._call()
        else:
            self.operands.memory = opcode not in ADDRESS_OPCODES
            operands = self._operands(text)
            self._check(opcode, operands, start)
            if operands and tokens.texts[tokens.at - 2] == ".unified":
                modifiers += ("unified",)
        line = tokens.line(start)
        self.instructions.append(Instruction(opcode, modifiers, operands, guard, line, self.source))

    def _split(self, text: str, start: int) -> tuple[str, tuple[str, ...]]:
        opcode, *modifiers = text.split(".")
        if opcode not in OPCODES:
            if text == END or not (text[0].isalpha() or text[0] in "%_$"):
                self.tokens.fail(f"expected an instruction, got {self.tokens.shown(start)}", start)
            self.tokens.fail(
                f"{self.tokens.shown(start)} is no PTX instruction{suggestion(opcode, OPCODES)}",
                start,
            )
        return opcode, tuple(modifiers)

    def _operands(self, text: str) -> tuple[Operand, ...]:
        tokens = self.tokens
        texts = tokens.texts
        resolved = self.scopes.resolved
        if tokens.next in (";", "}"):
            tokens.expect(";", f"'{text[:60]}'")
            return ()
        operands: list[Operand] = []
        while True:
            operand = resolved.get(texts[tokens.at])
            if operand is not None and texts[tokens.at + 1] in _ENDS:
                tokens.at += 1
            else:
                operand = self.operands.operand()
            operands.append(operand)
            mark = texts[tokens.at]
            if mark == ",":
                tokens.at += 1
                continue
            if mark == ".unified":
                tokens.at += 1
            elif mark != ";" and tokens.line() == tokens.line(tokens.at - 1):
                tokens.fail(
                    f"expected ',' or ';' after an operand of '{text[:60]}', got {tokens.shown()}"
                )
            tokens.expect(";", f"'{text[:60]}'")
            return tuple(operands)

    def _call(self) -> tuple[Operand, ...]:
        """`(returns), function, (arguments), prototype;` with every part but one optional."""
        tokens = self.tokens
        read = self.operands
        returns = arguments = _NO_GROUP
        if tokens.next == "(":
            returns = read.group("the results of a call")
            tokens.expect(",", "the results of a call")
        target = read.element()
        rest: tuple[Operand, ...] = ()
        if tokens.accept(","):
            if tokens.next == "(":
                arguments = read.group("the arguments of a call")
                if tokens.accept(","):
                    rest = (read.element(),)
            else:
                rest = (read.element(),)
        tokens.expect(";", "a call")
        return (returns, target, arguments, *rest)

    def _check(self, opcode: str, operands: tuple[Operand, ...], start: int) -> None:
        """End the parse where the number of operands is wrong or an address has no brackets."""
        least, most = OPERAND_COUNTS.get(opcode, (0, len(operands)))
        text = self.tokens.texts[start][:60]
        if not least <= len(operands) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            noun = "operand" if wanted == "1" else "operands"
            self.tokens.fail(f"'{text}' takes {wanted} {noun}, got {len(operands)}", start)
        place = MEMORY_OPERAND.get(opcode)
        if place is not None and not isinstance(operands[place], Address):
            which = "first" if place == 0 else "second"
            self.tokens.fail(
                f"the {which} operand of '{text}' is an address: write it as [a]", start
            )


def _renamed(operand: Operand, new: Mapping[str, str]) -> Operand:
    if isinstance(operand, Name):
        return Name(new.get(operand.name, operand.name))
    if isinstance(operand, Vector | Group):
        return replace(operand, elements=tuple(_renamed(e, new) for e in operand.elements))
    if isinstance(operand, Pair):
        return Pair(_renamed(operand.first, new), _renamed(operand.second, new))
    return operand
