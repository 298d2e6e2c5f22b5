"""`parse`: the text of a PTX module as records, or the place and reason why it is none."""

from __future__ import annotations

import re

from ptxsearch.ptx import limits
from ptxsearch.ptx.annotation import files_named, pragma, skip_file, skip_section
from ptxsearch.ptx.body import Body
from ptxsearch.ptx.constant import integer
from ptxsearch.ptx.declaration import index_bytes, variables
from ptxsearch.ptx.function import Header
from ptxsearch.ptx.scope import Scopes
from ptxsearch.ptx.syntax import Function, Module, SyntaxFault, Variable
from ptxsearch.ptx.tokens import END, Halt, Tokens, fault_at, suggestion
from ptxsearch.ptx.vocabulary import LINKAGES, MODULE_DIRECTIVES

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_TARGET = re.compile(r"(?:sm|compute)_[0-9]{2,3}[af]?")


def parse(text: str | bytes) -> Module | SyntaxFault:
    """The module a PTX text describes, or why it is none; a text never raises."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            return SyntaxFault(f"the text is not UTF-8: byte {error.start} is invalid", 1, 1)
    text = text.removesuffix("\x00")
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size > limits.SOURCE_BYTES:
        message = f"the text has {size} bytes; at most {limits.SOURCE_BYTES} are accepted"
        return SyntaxFault(message, 1, 1)
    strange = re.search("[\x00\ud800-\udfff]", text)
    if strange:
        return fault_at(
            text, strange.start(), f"the character {strange[0]!r} is not allowed in PTX"
        )
    try:
        return _Parser(Tokens(text)).module()
    except Halt as halt:
        return halt.fault


class _Parser:
    """Reads the directives of a module one after the other."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.files = files_named(tokens)
        self.names: dict[str, int] = {}
        self.scopes = Scopes(tokens, self.names)
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.aliases: dict[str, str] = {}
        self.pragmas: list[str] = []
        self.instructions = 0
        self.initialised = 0

    def module(self) -> Module:
        """The whole text as a module."""
        tokens = self.tokens
        version = self._version()
        target, options = self._target()
        address_size = 64
        while tokens.next != END:
            text = tokens.take()
            if text == ".address_size":
                address_size = self._address_size()
            elif text != ";":
                self._directive(text)
        return Module(
            version=version,
            target=target,
            address_size=address_size,
            functions=self.functions,
            variables=self.variables,
            text=tokens.text,
            options=options,
            aliases=self.aliases,
            pragmas=tuple(self.pragmas),
        )

    def _version(self) -> tuple[int, int]:
        tokens = self.tokens
        if tokens.next != ".version":
            tokens.fail(f"a module begins with .version, e.g. '.version 8.0', got {tokens.shown()}")
        tokens.at += 1
        match = _VERSION.fullmatch(tokens.next)
        if match is None:
            tokens.fail(f".version is followed by a number such as 8.0, got {tokens.shown()}")
        tokens.at += 1
        return int(match[1]), int(match[2])

    def _target(self) -> tuple[str, tuple[str, ...]]:
        tokens = self.tokens
        if tokens.next != ".target":
            tokens.fail(
                f".version is followed by .target, e.g. '.target sm_90', got {tokens.shown()}"
            )
        words: list[str] = []
        while not words or tokens.accept(","):
            if not words:
                tokens.at += 1
            words.append(tokens.identifier("a target"))
        if _TARGET.fullmatch(words[0]) is None:
            tokens.fail(
                f"unknown target '{words[0][:40]}'; write for example sm_80, sm_90 or sm_90a"
            )
        return words[0], tuple(words[1:])

    def _address_size(self) -> int:
        size = integer(self.tokens, "the address size")
        if size not in (32, 64):
            self.tokens.fail(f".address_size is 32 or 64, got {size}")
        return size

    def _directive(self, text: str) -> None:
        tokens = self.tokens
        start = tokens.at - 1
        word = text[1:] if text[0] == "." else ""
        linkage = ""
        while word in LINKAGES:
            linkage = word
            text = tokens.take()
            word = text[1:] if text[:1] == "." else ""
        if word in ("entry", "func"):
            self._function(word, linkage, tokens.line(start))
        elif word in ("global", "const", "shared", "local", "tex"):
            self._variables(word, linkage)
        elif linkage:
            tokens.fail(f"'.{linkage}' is followed by .entry, .func or a variable", tokens.at - 1)
        elif word == "section":
            skip_section(tokens)
        elif word == "file":
            skip_file(tokens)
        elif word == "pragma":
            self.pragmas.append(pragma(tokens))
        elif word == "alias":
            self._alias()
        else:
            self._unknown(text, word, start)

    def _unknown(self, text: str, word: str, start: int) -> None:
        if not word:
            hint = "; instructions stand inside the { } of an .entry or .func"
            hint = "; there is one '}' too many before it" if text == "}" else hint
            self.tokens.fail(
                f"unexpected {self.tokens.shown(start)} outside a function{hint}", start
            )
        if word in ("version", "target"):
            self.tokens.fail(f"'.{word}' stands once, at the head of a module; remove it", start)
        known = suggestion(word, MODULE_DIRECTIVES)
        self.tokens.fail(f"'.{word[:60]}' is no directive of a module{known}", start)

    def _alias(self) -> None:
        tokens = self.tokens
        alias = tokens.identifier("an alias")
        tokens.expect(",", "an alias")
        target = tokens.identifier("the aliased function")
        tokens.expect(";", ".alias")
        if target not in self.functions:
            tokens.fail(f"'{target}' is no function{suggestion(target, self.functions)}")
        self.aliases[alias] = target
        self.names.setdefault(alias, 0)

    def _variables(self, space: str, linkage: str) -> None:
        found = variables(
            self.tokens, self.scopes, space=space, linkage=linkage, declare=lambda name: name
        )
        for variable in found:
            earlier = self.variables.get(variable.name)
            if variable.name in self.names and (earlier is None or earlier.linkage != "extern"):
                self.tokens.fail(f"'{variable.name}' is declared twice; rename one of them")
            self.variables[variable.name] = variable
            self.names[variable.name] = index_bytes(variable)
            self.initialised += len(variable.init or b"")
            if self.initialised > limits.INITIALISED_BYTES:
                self.tokens.fail(f"initialised data exceed {limits.INITIALISED_BYTES} bytes")

    def _function(self, kind: str, linkage: str, line: int) -> None:
        tokens = self.tokens
        scopes = Scopes(tokens, self.names)
        header = Header(kind, linkage, line)
        start = header.read_name(tokens, scopes)
        earlier = self.functions.get(header.name)
        if header.name in self.names and earlier is None:
            tokens.fail(f"'{header.name}' is declared twice; rename one of them", start)
        if len(self.functions) >= limits.FUNCTIONS:
            tokens.fail(f"more than {limits.FUNCTIONS} functions; remove those not needed", start)
        self.names[header.name] = 0
        header.read_rest(tokens, scopes)
        body = None
        if not tokens.accept(";"):
            tokens.expect("{", f"the header of '{header.name[:60]}'")
            if earlier is not None and not earlier.declared:
                tokens.fail(f"function '{header.name}' is defined twice; rename one of them", start)
            body = Body(tokens, scopes, self.files)
            body.read()
            self._count(body)
        if body is not None or earlier is None:
            self.functions.pop(header.name, None)
            self.functions[header.name] = header.function(scopes, body)

    def _count(self, body: Body) -> None:
        self.instructions += len(body.instructions)
        self.initialised += sum(len(variable.init or b"") for variable in body.variables)
        if self.instructions > limits.INSTRUCTIONS:
            self.tokens.fail(
                f"more than {limits.INSTRUCTIONS} instructions; make the module smaller"
            )
        if self.initialised > limits.INITIALISED_BYTES:
            self.tokens.fail(f"initialised data exceed {limits.INITIALISED_BYTES} bytes")
