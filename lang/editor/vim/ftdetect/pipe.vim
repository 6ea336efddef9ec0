" SPDX-License-Identifier: MIT
autocmd BufRead,BufNewFile *.pipe setfiletype pipe
