" SPDX-License-Identifier: MIT
" Two columns per level; a comment ends with its line. gq formats by pipec, whose errors would
" otherwise get into the text; :make reports them.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1
setlocal comments=:# commentstring=#\ %s expandtab shiftwidth=2 softtabstop=2
setlocal formatprg=pipec\ --fmt\ -\ 2>/dev/null makeprg=pipec\ --check\ %:S
let b:undo_ftplugin = 'setlocal comments< commentstring< expandtab< shiftwidth< softtabstop< formatprg< makeprg<'
