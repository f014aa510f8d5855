package ownership

import (
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// By some annotations of an Application, or of its AppProject, other controllers act with
// rights of their own: the notifications controller writes to whom they name, in the name of
// its Argo CD, and Image Updater reads the Secrets that they name and sends them to the
// registry that they name. On the hub a spoke has no such rights, and must not borrow them:
// these annotations of its objects stay where they are. Who wants the same of the hub's
// controllers annotates the mirror there; that stays, as all that is not the source's.

// isForDeputy reports whether an annotation has another controller act by it.
func isForDeputy(key string) bool {
	return strings.Contains(key, "notifications.argoproj.io") || // argocd-notifications had it at the end
		strings.HasPrefix(key, "argocd-image-updater.argoproj.io/")
}

// admittedAnnotations are those of the source that its copy has on a side.
func admittedAnnotations(side stream.Side, annotations map[string]any) map[string]any {
	if side != stream.Hub {
		return annotations
	}
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key string, _ any) bool { return isForDeputy(key) })
	return out
}

// borrows reports whether a copy was written when such annotations came along.
func borrows(side stream.Side, rec record.Record) bool {
	return side == stream.Hub && slices.ContainsFunc(rec.Annotations, isForDeputy)
}
