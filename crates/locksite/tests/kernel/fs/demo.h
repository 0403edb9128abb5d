struct private { char pad[24]; struct mutex lock; };
