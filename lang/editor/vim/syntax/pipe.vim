" SPDX-License-Identifier: MIT
" Syntax of the .pipe language (lang/spec.md, section 1). Words and operators stand in the order of lexer.re.
if exists('b:current_syntax')
  finish
endif

syn match pipeError /\S/
syn match pipeOperator /->\|\.\.\|==\|!=\|<=\|>=\|&&\|||\|[.,;:()\[\]{}+*\/%<>!?=@-]/
syn match pipeNumber /\d\+\(_\d\+\)*\(\.\d\+\(_\d\+\)*\)\?\h\?\w*/
syn match pipeName /\<\h\w*\>/
syn match pipeFunction /\<\h\w*\>\ze\s*(/
syn match pipeOp /\<\([FBIWRU]\|OFF\|LOAD\|REDUCE\|TIE\)\>/

syn keyword pipeClause schedule requires extends import let fn op ranks pipe stages mbs place replica of dag edge tie order time bytes profile check limit recompute slices tune tries by offload lead side exclusive send transfers weights
syn keyword pipeFlow steady clip clock period rules overlap when do if else in step for stage

syn region pipeString start=/"/ skip=/\\./ end=/"\|$/ contains=pipeEscape
syn match pipeEscape /\\["\\]/ contained
syn match pipeComment /#.*$/ contains=@Spell

hi def link pipeError Error
hi def link pipeOperator Operator
hi def link pipeNumber Number
hi def link pipeFunction Function
hi def link pipeOp Type
hi def link pipeClause Keyword
hi def link pipeFlow Statement
hi def link pipeString String
hi def link pipeEscape SpecialChar
hi def link pipeComment Comment

let b:current_syntax = 'pipe'
