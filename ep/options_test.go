// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	env "mori/core/config"
)

const oneTable = `{"version": 1, "tables": [{"device": "NVIDIA H200", "ranks": 2, "rules": [
  {"call": "dispatch", "row_bytes": 7168, "tokens": 128, "blocks": 24, "warps": 4, "us": 22}]}]}`

func TestTheEnvironmentSaysHowLaunchesAreChosen(t *testing.T) {
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "good"), filepath.Join(folder, "bad")
	for path, text := range map[string]string{good: oneTable, bad: "{"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ours := filepath.Join(folder, "mori", "ep-tuning.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(ours), 0o700), os.WriteFile(ours, []byte(oneTable), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		set   map[string]string
		table bool
		fails error
	}{
		"nothing":           {nil, false, nil},
		"by hand":           {map[string]string{env.EPLaunchConfigMode: "MANUAL", env.EPTuning: bad}, false, nil},
		"a file":            {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: good}, true, nil},
		"the usual file":    {map[string]string{env.EPLaunchConfigMode: "AUTO", "XDG_CONFIG_HOME": folder}, true, nil},
		"no file":           {map[string]string{env.EPLaunchConfigMode: "AUTO", "HOME": folder}, false, nil},
		"no file of a name": {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: folder + "/none"}, false, fs.ErrNotExist},
		"a bad file":        {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: bad}, false, ErrConfig},
		"another word":      {map[string]string{env.EPLaunchConfigMode: "SOMETIMES"}, false, ErrConfig},
		"less than nothing": {map[string]string{env.EPBlocks: "-1"}, false, ErrConfig},
	} {
		env.SetLookup(func(name string) (string, bool) { v, ok := c.set[name]; return v, ok })
		var o Options
		err := o.launchesFromEnv()
		env.SetLookup(nil)
		if !errors.Is(err, c.fails) || (o.Tuning != nil) != c.table {
			t.Errorf("%s: %+v, %v", name, o.Tuning, err)
		}
	}
}
