/**
 * The completion scripts of shells. Each gives the words of its line to `shardwright complete` and
 * offers what that prints, so that they know no command and no flag themselves.
 *
 * Sources: "Programmable Completion" of the Bash manual; zshcompsys(1), `compadd` and `_describe`;
 * "Writing your own completions" of fish.
 */

/** Words after the cursor do not matter; the last one is that which is completed. */
const bash = `# shardwright completion bash > ~/.local/share/bash-completion/completions/shardwright
_shardwright() {
  local line value
  COMPREPLY=()
  while IFS= read -r line; do
    value="\${line%%$'\\t'*}"
    if [ "$value" = ":files" ]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$2")
    else
      COMPREPLY+=("$value")
    fi
  done < <("$1" complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _shardwright shardwright
`;

const zsh = `#compdef shardwright
# shardwright completion zsh > "\${fpath[1]}/_shardwright"
_shardwright() {
  local line
  local -a found
  local files=0
  while IFS= read -r line; do
    if [[ $line == :files* ]]; then
      files=1
    else
      found+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
    fi
  done < <("\${words[1]}" complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( \${#found} )); then _describe shardwright found; fi
  if (( files )); then _files; fi
}
if [ "\${funcstack[1]}" = _shardwright ]; then
  _shardwright "$@"
else
  compdef _shardwright shardwright
fi
`;

const fish = `# shardwright completion fish > ~/.config/fish/completions/shardwright.fish
function __shardwright
  set -l words (commandline -opc) (commandline -ct)
  for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
    if string match -q ':files*' -- $line
      __fish_complete_path (commandline -ct)
    else
      echo $line
    end
  end
end
complete -c shardwright -f -a '(__shardwright)'
`;

/** By the name of the shell. */
export const COMPLETION_SCRIPTS = { bash, zsh, fish } as const;
