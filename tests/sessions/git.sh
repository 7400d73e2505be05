# Git, with authors and dates fixed so that every hash is comparable.

export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git config --global init.defaultBranch main
git config --global advice.detachedHead false
git config --global gc.autoDetach false
git config --global safe.directory '*'
# What is in a repository, without what depends on times and inode numbers.
state() {
    git -C "${1:-.}" log --all --format='%H %D %s' --topo-order; git -C "${1:-.}" status --porcelain; git -C "${1:-.}" ls-files -s
    git -C "${1:-.}" count-objects -v | grep -v size; git -C "${1:-.}" fsck --full --strict
}
forget() { find . -depth -name .git -prune -exec rm -rf {} +; find . -depth -name '*.git' -exec rm -rf {} +; }
repository() {
    git init -q r; cd r; for i in 1 2 3 4 5; do mkdir -p d$i/e; seq $((i * 50)) >d$i/e/f; echo "top $i" >t$i; git add -A; git commit -qm "commit $i"; done
}

#:: init_add_commit needs git
git init r; cd r; echo one >a; git status -s; git add a; git status -s; git commit -qm first; echo two >>a; git diff; git commit -qam second; git log --oneline; git show --stat HEAD; mkdir d; touch d/x; chmod +x d/x; ln -s a l; git add .; git commit -qm third; git ls-tree -r HEAD; git mv a b; git rm -q d/x; git status -s; git commit -qm moved; git stash list; echo dirty >>b; git stash -q; cat b; git stash pop -q; git checkout -q -- b; cat .git/HEAD; git cat-file -p HEAD; ls .git; state; cd ..; forget

#:: branch_merge needs git
repository; git checkout -qb side HEAD~2; echo side >s; git add s; git commit -qm side; git checkout -q main; git merge -q --no-edit side; git log --graph --oneline; git checkout -qb conflict HEAD~1; echo c1 >t1; git commit -qam c1; git checkout -q main; echo c2 >t1; git commit -qam c2; git merge conflict; echo $?; git status -s; cat t1; git merge --abort; git merge -q -X ours --no-edit conflict; git branch -a; git branch -d side; git tag v1; git tag -am annotated v2; git tag; git diff main~1 --stat; git worktree add -q ../wt v1; ls ../wt; git worktree list | wc -l; git worktree remove ../wt; state; cd ..; forget

#:: rebase needs git limit 120
repository; git checkout -qb topic HEAD~3; for i in 1 2 3; do echo "topic $i" >p$i; git add .; git commit -qm "topic $i"; done; git rebase -q main; git log --oneline; GIT_SEQUENCE_EDITOR='sed -i -e "2s/pick/squash/"' GIT_EDITOR=true git rebase -q -i HEAD~3; git log --oneline; git cherry-pick main~2 2>&1 | tail -1; git cherry-pick --abort 2>/dev/null; git reset -q --hard; git revert --no-edit HEAD >/dev/null; git reset -q --hard HEAD~1; git reflog | wc -l; echo x >t1; git commit -qam x; git checkout -q main; echo y >t1; git commit -qam y; git rebase topic 2>/dev/null; echo $?; echo resolved >t1; git add t1; GIT_EDITOR=true git rebase --continue 2>/dev/null | tail -1; git am --abort 2>/dev/null; git format-patch -q -2; ls *.patch; git checkout -q main~2; git am -q *.patch 2>/dev/null; echo $?; git am --abort; state | sort; cd ..; forget

#:: gc_clone_fsck needs git limit 120
repository; git gc -q; find .git/objects -type f | sed 's/-[0-9a-f]*\./-X./' | sort; git repack -qadf; git prune; git pack-refs --all; cat .git/packed-refs; git verify-pack .git/objects/pack/*.idx; echo $?; cd ..; git clone -q r c; git clone -q --bare r b.git; git clone -q --mirror file://$T/r m.git; git clone -q --no-local --depth 2 file://$T/r shallow; git -C shallow log --oneline; cd c; echo more >more; git add more; git commit -qm more; git push -q ../b.git HEAD:main; git -C ../b.git log --oneline -1; git fetch -q ../m.git; git pull -q --no-rebase --no-edit ../r main; git remote -v | sed "s:$T:T:"; git bundle create -q ../x.bundle --all; git bundle verify -q ../x.bundle; cd ..; git clone -q x.bundle y; git -C y log --oneline -1; for r in r c b.git m.git shallow y; do git -C $r fsck --full; git -C $r count-objects -v | grep -v size; done; git -C r archive HEAD | tar t; rm x.bundle; forget

#:: submodule_and_hooks needs git
repository; cd ..; git init -q s; cd s; git -c protocol.file.allow=always submodule --quiet add ../r sub 2>&1 | sed "s:$T:T:"; git commit -qm sub; git submodule status; printf '#!/bin/sh\necho hook ran in $(basename "$PWD") >>hook.log\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo x >x; git add x; git commit -qm x; cat hook.log; printf '#!/bin/sh\nexit 1\n' >.git/hooks/commit-msg; chmod +x .git/hooks/commit-msg; git commit -q --allow-empty -m no; echo $?; git log --oneline; git config alias.st 'status -s'; git st; git config -l --local | grep alias; git grep -n top; git -C sub log --oneline -1; git clean -qfdx; ls; cd ..; forget; rm s/.gitmodules

#:: many_files needs git limit 180
git init -q r; cd r; for d in $(seq 20); do mkdir d$d; for f in $(seq 50); do echo "$d $f" >d$d/f$f; done; done; git add -A; git commit -qm many; git rev-parse HEAD; touch d*/*; git status -s | wc -l; echo changed >d3/f7; git status -s; git diff --stat; git checkout -q .; git rm -rq d1; git commit -qm rm; git rev-parse HEAD; git checkout -q HEAD~1; ls d1 | wc -l; git checkout -q main; ls | wc -l; git gc -q; git fsck --full; git bisect start -q HEAD HEAD~1 2>/dev/null | tail -1; git blame d2/f1 | cut -c1-9; git log --stat --format=%s | tail -1; cd ..; forget

#:: concurrent needs git limit 120
repository; export GIT_OPTIONAL_LOCKS=0; (for i in 1 2 3 4 5; do git status >/dev/null; done) & (for i in 1 2 3 4 5; do git log -p >/dev/null; done) & for i in 1 2 3; do echo $i >n$i; git add n$i; git commit -qm n$i; done; wait; touch .git/index.lock; git add . ; echo $?; rm .git/index.lock; state; cd ..; forget
