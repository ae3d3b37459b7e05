// SPDX-License-Identifier: MIT

package nics

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"mori/core/config"
	"mori/core/topology"
	"mori/native/verbs"
)

// problems returns the problems, from those that break everything to those that only reduce
// performance. A step that makes the next ones pointless is the last.
func (s *sight) problems(rails []topology.Rail, malformed, refused error) []Problem {
	p := problems{}
	for _, err := range []error{malformed, refused, gidSetting()} {
		if err != nil {
			p.add(err.Error(), "correct or unset the variable; mori env lists all of them")
		}
	}
	if s.library != nil {
		p.add(s.library.Error(), "apt-get install libibverbs1 ibverbs-providers, or dnf install libibverbs; in a container, in its image")
	}
	if len(s.host.RDMA) == 0 {
		p = append(p, s.noDevice()...)
		return p
	}
	closed := s.closedFiles()
	if s.library == nil {
		p = append(p, s.opened(closed)...)
	}
	p = append(p, s.deviceFiles(closed)...)
	p = append(p, s.ports(len(rails))...)
	p = append(p, s.firmware()...)
	if c := s.locked.check(); !c.OK {
		p.add(c.Reason, "ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container")
	}
	if c := s.gpuDirect(); !c.OK && len(s.host.GPUs) > 0 {
		p.add(c.Reason, s.host.GPUDirectRemedy())
	}
	return p
}

type problems []Problem

func (p *problems) add(what, remedy string) { *p = append(*p, Problem{what, remedy}) }

func gidSetting() error {
	_, err := config.Int(config.IBGIDIndex, -1, 0, 1<<16)
	return err
}

// noDevice says how a host without RDMA devices could get some.
func (s *sight) noDevice() problems {
	var p problems
	for _, driver := range s.netDrivers() {
		if module := topology.RDMAModule(driver); module != "" && !topology.Loaded(s.root, module) {
			p.add(fmt.Sprintf("this host has network cards of %s, but the RDMA module %s is not loaded", driver, module), "modprobe "+module)
		}
	}
	if len(p) == 0 {
		p.add("this host has no RDMA device", "no action is needed: mori uses shared memory and TCP. To try RDMA without a card: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")
	}
	return p
}

// netDrivers returns the drivers of the network cards on the PCI bus.
func (s *sight) netDrivers() []string {
	const bus = "sys/bus/pci/devices"
	var drivers []string
	devices, _ := fs.ReadDir(s.root, bus)
	links, ok := s.root.(interface{ ReadLink(string) (string, error) })
	if !ok {
		return nil
	}
	for _, d := range devices {
		class, _ := fs.ReadFile(s.root, path.Join(bus, d.Name(), "class"))
		to, err := links.ReadLink(path.Join(bus, d.Name(), "driver"))
		if driver := path.Base(to); err == nil && strings.HasPrefix(string(class), "0x02") && !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}

// A deviceFile is a file in /dev/infiniband, through which programs access an RDMA device.
type deviceFile struct {
	path string
	err  error // why it cannot be read and written
}

// closedFiles returns those that this process cannot use, by device name.
func (s *sight) closedFiles() map[string]deviceFile {
	const class = "sys/class/infiniband_verbs"
	closed := map[string]deviceFile{}
	known, _ := fs.ReadDir(s.root, class)
	for _, d := range known {
		name, err := fs.ReadFile(s.root, path.Join(class, d.Name(), "ibdev"))
		if err != nil {
			continue
		}
		file := deviceFile{path: "/dev/infiniband/" + d.Name()}
		if file.err = s.access(file.path); file.err != nil {
			closed[strings.TrimSpace(string(name))] = file
		}
	}
	return closed
}

// deviceFiles reports what keeps this process from accessing any of the kernel's devices. Access to
// only some of them, as in a container, is not a problem.
func (s *sight) deviceFiles(files map[string]deviceFile) problems {
	var p problems
	devices := s.inKernel()
	if _, err := fs.Stat(s.root, "sys/class/infiniband_verbs"); err != nil && len(devices) > 0 && !topology.Loaded(s.root, "ib_uverbs") {
		p.add("the kernel has RDMA devices, but ib_uverbs, which programs need, is not loaded", "modprobe ib_uverbs")
		return p
	}
	if len(files) < len(devices) {
		return nil
	}
	var missing, closed []string
	for _, device := range devices {
		if f := files[device]; errors.Is(f.err, fs.ErrNotExist) {
			missing = append(missing, f.path)
		} else {
			closed = append(closed, f.path)
		}
	}
	if len(missing) > 0 {
		p.add("this container lacks device files of the RDMA devices: "+strings.Join(missing, ", "), "start the container with --device=/dev/infiniband; on the host itself: udevadm trigger")
	}
	if len(closed) > 0 {
		p.add("this user may not read and write "+strings.Join(closed, ", "), "chmod 666 them, as udev's rule of rdma-core does, or run as a user of their group")
	}
	return p
}

// opened reports devices that the library cannot open, and kernel devices that it does not know. It
// skips those with an inaccessible file, for which the library can do neither.
func (s *sight) opened(closed map[string]deviceFile) problems {
	var p problems
	for _, d := range s.devices {
		if _, isClosed := closed[d.name]; d.err != nil && !isClosed {
			p.add(d.err.Error(), openRemedy(d.err))
		}
	}
	var unknown []string
	for _, name := range s.inKernel() {
		_, isClosed := closed[name]
		if !isClosed && !slices.ContainsFunc(s.devices, func(seen seenDevice) bool { return seen.name == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		p.add("libibverbs does not list devices that the kernel has: "+strings.Join(unknown, ", "), "install the library's drivers: ibverbs-providers (Debian, Ubuntu), rdma-core (others), or the vendor's")
	}
	return p
}

// openRemedy returns a remedy if a device does not open. libibverbs also reports ENOENT for a file
// that it may not open.
func openRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOENT):
		return "allow it: read and write on /dev/infiniband/uverbs*; for a container --device=/dev/infiniband and --cap-add=IPC_LOCK"
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EIO):
		return "the device was removed or is broken: read dmesg, and reload its driver"
	case errors.Is(err, syscall.ENOMEM):
		return "raise the limit of locked memory: ulimit -l unlimited"
	}
	return "ibv_devinfo -v has details"
}

// inKernel returns the devices that the kernel reports.
func (s *sight) inKernel() []string {
	entries, _ := fs.ReadDir(s.root, "sys/class/infiniband")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ports returns the problems of ports that are down or have no good address, with remedies. A port
// that is down is not a problem while others are up.
func (s *sight) ports(usable int) problems {
	var p problems
	for _, port := range s.host.RDMA {
		if port.State == "INIT" || port.State == "ARMED" {
			p.add(fmt.Sprintf("port %s is %s: no subnet manager has set it up", port.Name(), port.State), "start one on the network: opensm, or the switch's")
		}
	}
	for _, d := range s.devices {
		for _, seen := range d.ports {
			if seen.attr.State == verbs.PortActive {
				p = append(p, addressOf(topology.RDMA{Device: d.name, Port: seen.number}.Name(), seen)...)
			}
		}
	}
	if len(p) > 0 || usable > 0 {
		return p
	}
	for _, port := range s.host.RDMA {
		if !port.Up() && port.Fault == "" {
			p.add(fmt.Sprintf("port %s is %s", port.Name(), strings.ToLower(port.State)), downRemedy(port))
		}
	}
	return p
}

func downRemedy(port topology.RDMA) string {
	if port.NetDev == "" {
		return "check its cable and the other end"
	}
	return fmt.Sprintf("ip link set %s up, and check its cable and the other end", port.NetDev)
}

// addressOf checks the address of a port that peers would use.
func addressOf(nic string, p seenPort) problems {
	var found problems
	dev := cmp.Or(p.taken.NetDev, "its network interface")
	for _, g := range p.gids {
		dev = cmp.Or(g.NetDev, dev)
	}
	text := GIDText(p.taken.GID)
	switch {
	case p.unreachable() != nil:
		found.add(fmt.Sprintf("port %s: %v", nic, p.unreachable()), fmt.Sprintf("give %s an address, as with ip addr add; or correct %s", dev, config.IBGIDIndex))
	case p.attr.LinkLayer != verbs.LinkEthernet:
	case p.taken.Type != verbs.GIDRoCEv2:
		found.add(fmt.Sprintf("port %s has no RoCE v2 address, and %s of type %s does not pass routers", nic, text, p.taken.Type), "give "+dev+" an IPv4 address, as with ip addr add")
	case strings.HasPrefix(text, "fe80:"):
		found.add(fmt.Sprintf("port %s has a link-local address only (%s), which does not pass routers", nic, text), "give "+dev+" an IPv4 address, as with ip addr add")
	}
	return found
}

func (s *sight) firmware() problems {
	var p problems
	for _, d := range s.devices {
		if least := topology.FirmwareFloor(d.attr.VendorID, d.attr.VendorPartID, d.attr.FirmwareVersion); least != "" {
			p.add(fmt.Sprintf("firmware %s of %s is older than %s, the oldest that is known to work", d.attr.FirmwareVersion, d.name, least), "update it with the vendor's tool")
		}
	}
	return p
}
