package mirror

import (
	"slices"
	"strconv"

	"github.com/argomesh/argomesh/stream"
)

// maxPruned bounds the paths that are remembered as told.
const maxPruned = 256

// pruned returns the paths of written that stored does not have, sorted: fields
// that the API server of this side dropped, since its definition of the kind does
// not know them. A whole branch that is missing is one path.
func pruned(written, stored any) []string {
	var paths []string
	var walk func(path string, written, stored any)
	walk = func(path string, written, stored any) {
		switch w := written.(type) {
		case map[string]any:
			s, _ := stored.(map[string]any)
			for name, value := range w {
				if other, ok := s[name]; ok {
					walk(path+"."+name, value, other)
				} else if !isZero(value) { // what is empty may be left out
					paths = append(paths, path+"."+name)
				}
			}
		case []any:
			s, _ := stored.([]any)
			for i, value := range w {
				if i < len(s) {
					walk(path+"["+strconv.Itoa(i)+"]", value, s[i])
				}
			}
		}
	}
	walk("spec", written, stored)
	slices.Sort(paths)
	return paths
}

// tellPruned tells once of each path that it was dropped.
func (l *loop) tellPruned(key stream.ResourceKey, paths []string) {
	news := slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return l.pruned[string(key.Kind)+" "+path] })
	if len(news) == 0 || len(l.pruned) >= maxPruned {
		return
	}
	for _, path := range news {
		l.pruned[string(key.Kind)+" "+path] = true
	}
	l.m.cfg.Log.Warn().Stringer("resource", key).Strs("paths", news[:min(len(news), 16)]).
		Msg("the api server dropped fields that it does not know; its Argo CD is older than the other side's")
}

// specOf is the spec of an object as text; nil for what is none.
func specOf(raw []byte) any {
	fields, err := decode(raw)
	if err != nil {
		return nil
	}
	return fields["spec"]
}
