package mirror

import (
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// The ConfigMaps by which Argo CD checks repositories and commits. Both sides have
// them, and the spoke's owner may have put items of his own into his: what is the
// hub's is one item, a data key or a line of knownHosts, never the whole.
const (
	gpgKeys         = "argocd-gpg-keys-cm"
	tlsCertificates = "argocd-tls-certs-cm"
	knownHosts      = "argocd-ssh-known-hosts-cm"
	// knownHostsKey is the data key of knownHosts that has the lines.
	knownHostsKey = "ssh_known_hosts"
)

// TrustConfigMaps names the ConfigMaps that are mirrored. No other need be read.
func TrustConfigMaps() []string { return []string{gpgKeys, knownHosts, tlsCertificates} }

// items are the items of one of the ConfigMaps, by an id that fits into a record: a
// data key, or the hash of a line.
type items map[string]string

func itemsOf(name string, data map[string]any) items {
	out := items{}
	if name != knownHosts {
		for key, value := range data {
			if s, ok := value.(string); ok {
				out[key] = s
			}
		}
		return out
	}
	for _, line := range linesOf(data) {
		if id := lineID(line); id != "" {
			out[id] = strings.TrimSpace(line)
		}
	}
	return out
}

func linesOf(data map[string]any) []string {
	text := strings.TrimSuffix(stringAt(data, knownHostsKey), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// lineID is the id of a line of known hosts; empty for one that says nothing.
func lineID(line string) string {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return ""
	}
	return stream.HashOf([]byte(line)).String()[:16]
}

// change takes items away from o, and puts others in. What is not named stays, down
// to comments and the order of lines.
func (i items) change(o object, away []string) {
	data := o.child("data")
	if o.key.Name != knownHosts {
		for _, id := range away {
			delete(data, id)
		}
		for id, value := range i {
			o.ensure("data")[id] = value
		}
		return
	}
	lines := slices.DeleteFunc(linesOf(data), func(line string) bool { return slices.Contains(away, lineID(line)) })
	there := itemsOf(knownHosts, map[string]any{knownHostsKey: strings.Join(lines, "\n")})
	for _, id := range slices.Sorted(maps.Keys(i)) {
		if _, found := there[id]; !found {
			lines = append(lines, i[id])
		}
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	if text != stringAt(data, knownHostsKey) {
		o.ensure("data")[knownHostsKey] = text
	}
}

// trust is what a hub sends of one of the ConfigMaps: its items and nothing else.
func trust(o object) map[string]any {
	sent := map[string]any{}
	for id, value := range itemsOf(o.key.Name, o.child("data")) {
		sent[id] = value
	}
	return map[string]any{"items": sent}
}

// ownedTrust is what the source owns of the copy: the items that it sent.
func ownedTrust(o object, rec record) map[string]any {
	have, out := itemsOf(o.key.Name, o.child("data")), map[string]any{}
	for _, id := range rec.Items {
		if value, ok := have[id]; ok {
			out[id] = value
		}
	}
	return out
}

// put are the items of a record that are there because we put them there.
func (rec record) put() []string {
	return slices.DeleteFunc(slices.Clone(rec.Items), func(id string) bool { return slices.Contains(rec.Found, id) })
}

// planTrust makes the items of a ConfigMap of the spoke those of the hub, and takes
// away those that it put there before. An item that was there already, the same, was
// not put: it stays when the hub's goes.
func (r Rules) planTrust(e stream.Event, key stream.ResourceKey, current *object) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return r.withdraw(current), nil
	}
	content, refusal := contentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	sent, ok := content["items"].(map[string]any)
	if !ok {
		return nil, invalid("the event carries no items")
	}
	if refusal := r.Policy.trust(key.Name); refusal != nil {
		return nil, refusal
	}
	if refusal := r.outdated(e, current); refusal != nil {
		return nil, refusal
	}
	desired := items{}
	for id, value := range sent {
		s, text := value.(string)
		if !text || key.Name == knownHosts && (strings.ContainsAny(s, "\r\n") || lineID(s) != id) {
			return nil, invalid("an item is not what its id says")
		}
		desired[id] = s
	}
	next, old := newObject(key), record{}
	switch {
	case current == nil:
	case current.deleting():
		return nil, &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the ConfigMap is being deleted on the spoke; it is made anew when it is gone",
		}
	default:
		next = current.clone()
		old, _ = recordOf(next)
	}
	created, history := r.created(next, old, e.Revision), r.history(next, old)
	have := itemsOf(key.Name, next.child("data"))
	var found, away []string
	for id, value := range desired {
		theirs, there := have[id]
		ours := slices.Contains(old.Items, id) && !slices.Contains(old.Found, id)
		if there && theirs == value && !ours {
			found = append(found, id)
		}
	}
	for _, id := range old.put() {
		if _, kept := desired[id]; !kept {
			away = append(away, id)
		}
	}
	desired.change(next, away)
	slices.Sort(found)
	next.setAnnotation(sourceUIDKey, e.Version.SourceUID)
	next.setAnnotation(principalUIDKey, r.HubUID)
	r.stamp(next, record{
		Hash: e.Version.Hash.String(), Revision: e.Revision, Created: created, History: history,
		Items: slices.Sorted(maps.Keys(desired)), Found: found,
	})
	if current == nil {
		return []Write{{Op: Create, Raw: encode(next.fields)}}, nil
	}
	return update(*current, next), nil
}

// withdraw takes away what we put into a ConfigMap, and our marks. The ConfigMap
// itself belongs to the spoke's Argo CD, whoever made it.
func (r Rules) withdraw(current *object) []Write {
	if current == nil || !r.isCopy(*current) {
		return nil
	}
	next := current.clone()
	rec, _ := recordOf(next)
	items{}.change(next, rec.put())
	next.unmark()
	return update(*current, next)
}
