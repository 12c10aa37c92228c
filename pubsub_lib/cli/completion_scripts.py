"""The completion scripts of bash, zsh and fish.

Commands and options are in the script. Tables and topics are read from the database that the command line names, or
from that of the default INI files, for at most five seconds; without an answer the shell completes nothing.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pubsub_lib.cli.completion import COMMANDS, FILES, NOTHING, TABLES, TOPICS, Command, Option, groups

Script = Callable[[Sequence[Option], Sequence[Command]], str]
"""From the options of the program, which may be anywhere, and its commands, to the text of a script."""

_DATABASE: Final = "--config-file --config-dir --database"
"""Options that lead to the database; they are passed on when names are read."""

_BASH: Final = r"""_pubsub_db()
{
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  local name='' key='' options='' values='' arguments='' kind='' skip='' last='' each names
  local count=0 database_options='@DATABASE@'
  local -a given database
@DATA@
  # "--topic=x" and "sqlite:///x" are several words for bash: join them again.
  for each in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    if [[ ${#given[@]} -gt 0 && ( $each == [:=]* || $last == *[:=] ) ]]; then
      given[${#given[@]}-1]=${given[${#given[@]}-1]}$each
    else
      given+=("$each")
    fi
    last=$each
  done
  for each in "${given[@]}"; do
    if [[ -n $skip ]]; then
      [[ " $database_options " == *" $skip "* ]] && database+=("$skip" "$each")
      skip=''
    elif [[ $each == -*=* ]]; then
      [[ " $database_options " == *" ${each%%=*} "* ]] && database+=("$each")
    elif [[ $each == -* ]]; then
      [[ " $program_values $values " == *" $each="* ]] && skip=$each
    elif [[ -z $name || " $groups " == *" $name "* ]]; then
      name=${name:+$name }$each
      key=${name//[- ]/_}
      key=${key//[^a-zA-Z0-9_]/}
      eval "options=\${cmds_$key-} values=\${values_$key-} arguments=\${args_$key-}"
    else
      count=$((count + 1))
    fi
  done
  if [[ $cur == = ]]; then
    skip=$prev cur=''
  elif [[ $prev == = && ${#given[@]} -gt 0 ]]; then
    skip=${given[${#given[@]}-1]%=}
  fi
  if [[ -n $skip ]]; then
    for each in $program_values $values; do
      [[ $each == "$skip="* ]] && kind=${each#*=}
    done
  elif [[ $cur == -* ]]; then
    kind="$options $program_options"
  elif [[ -z $name ]]; then
    kind=$cmds
  elif [[ " $groups " == *" $name "* ]]; then
    kind=$options
  else
    for each in $arguments; do
      kind=${each%+}
      [[ $count -eq 0 ]] && break
      [[ $each == *+ ]] || kind=''
      count=$((count - 1))
    done
  fi
  COMPREPLY=()
  case $kind in
    ''|nothing) ;;
    files)
      COMPREPLY=($(compgen -f -- "$cur"))
      [[ -n ${BASH_VERSION-} ]] && compopt -o filenames 2>/dev/null ;;
    tables|topics)
      names=$(timeout 5 pubsub-db --quiet "${database[@]}" "$kind" --format value --column "${kind%s}" 2>/dev/null)
      while IFS= read -r each; do
        [[ -n $each && $each == "$cur"* ]] && COMPREPLY+=("$(printf %q "$each")")
      done <<< "$names" ;;
    *)
      [[ $kind == commands ]] && kind=$cmds
      for each in ${kind//|/ }; do
        [[ $each == "$cur"* ]] && COMPREPLY+=("$each")
      done ;;
  esac
}
complete -F _pubsub_db pubsub-db
"""
_FISH: Final = r"""# Completion of pubsub-db for fish.
function __pubsub_db_words
    set -l skip 0
    for each in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $each @WITH_VALUE@
            set skip 1
        else if not string match -q -- '-*' $each
            echo $each
        end
    end
end
function __pubsub_db_at --argument-names count
    set -l words (__pubsub_db_words)
    set -l name $argv[2..-1]
    set -l length (count $name)
    test (count $words) -ge $length; or return 1
    test $length -eq 0; or test "$words[1..$length]" = "$name"; or return 1
    set -l further (math (count $words) - $length)
    switch $count
        case any
            return 0
        case '*+'
            test $further -ge (string trim --right --chars=+ $count)
        case '*'
            test $further -eq $count
    end
end
function __pubsub_db_names --argument-names kind column
    set -l database
    set -l words (commandline -opc)
    for at in (seq (count $words))
        if contains -- $words[$at] @DATABASE@
            set -a database $words[$at] $words[(math $at + 1)]
        else if string match -qr -- '^--(config-file|config-dir|database)=' $words[$at]
            set -a database $words[$at]
        end
    end
    timeout 5 pubsub-db --quiet $database $kind --format value --column $column 2>/dev/null
end
complete -c pubsub-db -f
"""


def _bash(program: Sequence[Option], commands: Sequence[Command]) -> str:
    return f"# Completion of pubsub-db for bash.\n{_function(program, commands)}"


def _zsh(program: Sequence[Option], commands: Sequence[Command]) -> str:
    """The function of bash, which zsh can run, too."""
    loading = "autoload -U +X bashcompinit && bashcompinit"
    return (
        f"# Completion of pubsub-db for zsh; to be sourced after compinit.\n{loading}\n{_function(program, commands)}"
    )


def _function(program: Sequence[Option], commands: Sequence[Command]) -> str:
    data = {"cmds": " ".join(groups(commands)), "groups": ""}
    for first, members in groups(commands).items():
        if members[0].name != first:
            data["groups"] += f" {first}"
            data[f"cmds_{_key(first)}"] = " ".join(each.name.removeprefix(f"{first} ") for each in members)
    data["program_options"], data["program_values"] = _words(program), _values(program)
    for each in commands:
        key = _key(each.name)
        data[f"cmds_{key}"] = _words(each.options)
        data[f"values_{key}"] = _values(each.options)
        data[f"args_{key}"] = " ".join(each.arguments) + ("+" if each.repeated else "")
    lines = "\n".join(f"  local {name}={shlex.quote(value.strip())}" for name, value in data.items())
    return _BASH.replace("@DATA@", lines).replace("@DATABASE@", _DATABASE)


def _key(name: str) -> str:
    return re.sub("[- ]", "_", name)


def _words(options: Sequence[Option]) -> str:
    return " ".join(name for each in options for name in each.names)


def _values(options: Sequence[Option]) -> str:
    return " ".join(f"{name}={each.value}" for each in options for name in each.names if each.value)


def _fish(program: Sequence[Option], commands: Sequence[Command]) -> str:
    everything = [*program, *(option for each in commands for option in each.options)]
    with_value = sorted({name for each in everything if each.value for name in each.names})
    lines = [_line("", *_option(each)) for each in program]
    for first, members in groups(commands).items():
        if members[0].name != first:
            lines.append(_line("0", "-a", first))
    for each in commands:
        *group, last = each.name.split()
        lines.append(_line(" ".join(["0", *group]), "-a", last, *_described(each.help)))
        lines += [_line(f"any {each.name}", *_option(option)) for option in each.options]
        for at, kind in enumerate(each.arguments):
            count = f"{at}+" if each.repeated and at == len(each.arguments) - 1 else f"{at}"
            if kind != NOTHING:
                lines.append(_line(f"{count} {each.name}", *_completed(kind, commands)))
    text = _FISH.replace("@WITH_VALUE@", " ".join(with_value)).replace("@DATABASE@", _DATABASE)
    return text + "".join(f"{line}\n" for line in lines)


def _line(condition: str, *arguments: str) -> str:
    """``condition``: the arguments of ``__pubsub_db_at``; "" for none."""
    only = ["-n", f"__pubsub_db_at {condition}"] if condition else []
    return " ".join(["complete -c pubsub-db", *map(_quoted, [*only, *arguments])])


def _quoted(word: str) -> str:
    r"""For fish, where only \ and ' are special between single quotes."""
    if re.fullmatch(r"[\w-]+", word):
        return word
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _option(option: Option) -> Iterator[str]:
    for name in option.names:
        yield from ("-l", name[2:]) if name.startswith("--") else ("-s", name[1:])
    if option.value:
        yield "-r" if option.value == FILES else "-x"
    if option.value not in ("", NOTHING):
        yield from _completed(option.value, ())
    yield from _described(option.help)


def _described(text: str) -> Sequence[str]:
    return ("-d", text) if text else ()


def _completed(kind: str, commands: Sequence[Command]) -> Sequence[str]:
    if kind == FILES:
        return ("-F",)
    if kind in (TABLES, TOPICS):
        return ("-a", f"(__pubsub_db_names {kind} {kind.removesuffix('s')})")
    return ("-a", " ".join(groups(commands)) if kind == COMMANDS else kind.replace("|", " "))


SCRIPTS: Final[Mapping[str, Script]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
