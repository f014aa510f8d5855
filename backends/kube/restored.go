package kube

// maxBuried bounds how many of the objects that went last an informer remembers.
const maxBuried = 1024

// buried are the UIDs of the objects whose deletion a watch told last. One of them that is
// there again was brought back by a restore: no UID is given twice.
type buried struct {
	uids map[string]bool
	line []string // oldest first, from next on
	next int
}

func (b *buried) add(uid string) {
	if b.uids == nil {
		b.uids = map[string]bool{}
	}
	if len(b.line) < maxBuried {
		b.line = append(b.line, uid)
	} else {
		delete(b.uids, b.line[b.next])
		b.line[b.next] = uid
		b.next = (b.next + 1) % maxBuried
	}
	b.uids[uid] = true
}

func (b *buried) has(uid string) bool { return b.uids[uid] }
